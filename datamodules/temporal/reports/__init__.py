"""Reports and plots of series, questions and answers. Imports synthetic, text and multimodal.reports."""
