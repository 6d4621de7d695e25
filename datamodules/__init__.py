"""The DataModules of the families, which import `engine` and no other family.

`multimodal` has what the language-model families share, and `images` decodes image files for every family.
"""
