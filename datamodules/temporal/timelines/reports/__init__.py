"""Reports and plots of series, questions and answers. Imports dataset, synthetic, text and multimodal.reports."""
