"""The command `demo`: a page on which visitors ask a trained model.

server.py answers requests, model_queue.py lets one visitor after another use the model, pages/ is what the browser
runs. The package imports commands.answers, and no family.
"""
