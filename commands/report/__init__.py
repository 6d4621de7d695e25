"""The page of `train.py report`: metrics, events, previews and the differences of runs. Imports `engine`."""
