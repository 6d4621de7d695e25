"""Questions about any series: normalization, resampling, prompts, grading. Imports multimodal and engine."""
