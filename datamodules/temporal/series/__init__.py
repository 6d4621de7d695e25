"""Questions about any series: normalisation, resampling, prompts, grading. Imports multimodal and engine."""
