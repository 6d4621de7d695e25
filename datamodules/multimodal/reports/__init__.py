"""Reports that show answers beside references. Imports engine.io only."""
