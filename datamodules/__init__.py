"""The DataModules of the families. They import `engine` alone; families build on `datamodules.multimodal`."""
