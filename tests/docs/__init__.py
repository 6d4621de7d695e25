"""The pages of docs/ agree with the program: links, options, commands, messages, and the tests of each promise."""
