"""Trains and answers with a model as a user of transformers would, as the reference of the fine-tuning."""

import torch
from PIL import Image, ImageOps
from torch.nn import functional as F

from datamodules.vision_language.pretrained.processor import ModelProcessor
from tests.support.outputs.jsonl import read_jsonl

QUESTION = "what colour is the square?"
RATE = 0.001
PLACEHOLDER = "<|modality|>"
"""A token of the directories that Lockstep exports."""


def records(chats):
    return [(record["messages"], record.get("image")) for record in read_jsonl(chats / "chats.jsonl")]


def picture_of(chats, name):
    """The picture upright, with transparency on white."""
    if name is None:
        return None
    image = ImageOps.exif_transpose(Image.open(chats / name)).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def conversation(processor, messages, picture):
    """Messages as users of transformers write them; a model that Lockstep exported was trained with the newline."""
    marker = "<image>" if PLACEHOLDER in processor.tokenizer.get_vocab() else "<image>\n"
    turns = []
    for message in messages:
        text = {"type": "text", "text": message["content"].removeprefix(marker)}
        image = [{"type": "image", "image": picture}] if message["content"].startswith("<image>") else []
        turns.append({"role": message["role"], "content": [*image, text]})
    return turns


def plain_inputs(processor, messages, picture):
    """Inputs and labels of one chat, by the public interface of transformers."""
    answer = messages[-1]["content"]
    if processor.chat_template is None:
        if picture is None:
            tokenizer = processor.tokenizer
            text, suffix = f"{tokenizer.bos_token}{messages[0]['content']}\n", f"{answer}{tokenizer.eos_token}"
            inputs = tokenizer(text, text_pair=suffix, return_token_type_ids=True, return_tensors="pt")
            return dict(inputs), inputs["input_ids"].masked_fill(inputs["token_type_ids"] == 0, -100)
        text = messages[0]["content"].removeprefix("<image>\n")
        inputs = processor(images=picture, text=f"<image>{text}", suffix=answer, return_tensors="pt")
        return inputs, inputs.pop("labels")
    turns = conversation(processor, messages, picture)
    if "</s>" in processor.tokenizer.get_vocab():  # a template that does not end the answer
        turns[-1]["content"][0]["text"] += "</s>"
    prompt = apply_template(processor, turns[:-1], add_generation_prompt=True)["input_ids"]
    inputs = apply_template(processor, turns)
    labels = inputs["input_ids"].clone()
    labels[:, : prompt.shape[1]] = -100
    ends = (labels[0] == processor.tokenizer.eos_token_id).nonzero()
    labels[:, int(ends[0]) + 1 :] = -100
    return inputs, labels


def apply_template(processor, turns, **how):
    """apply_chat_template of transformers; SmolVLM's own asks for a video processor, which needs torchvision."""
    from transformers import ProcessorMixin

    how = {"tokenize": True, "return_dict": True, "return_tensors": "pt", **how}
    return ProcessorMixin.apply_chat_template(processor, turns, **how)


def load(folder):
    from transformers import AutoModelForImageTextToText

    model, found = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    assert not any(found.values()), "no weight is missing, none is left over"
    return model, ModelProcessor(str(folder), folder).processor


def plain_samples(processor, chats):
    return [plain_inputs(processor, messages, picture_of(chats, image)) for messages, image in records(chats)]


def plain_loss(model, samples):
    """The loss of a loop that a user of transformers would write: a chat at a time, mean over the answers' tokens."""
    terms = []
    for inputs, labels in samples:
        logits = model(**inputs).logits
        terms.append(F.cross_entropy(logits[0, :-1], labels[0, 1:], ignore_index=-100, reduction="sum"))
    return torch.stack(terms).sum() / sum(int((labels != -100).sum()) for _, labels in samples)


def plain_training(folder, chats, steps):
    """Losses of the steps of a plain loop, and the model after them."""
    model, processor = load(folder)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.0)
    samples = plain_samples(processor, chats)
    losses = []
    for _ in range(steps):
        loss = plain_loss(model, samples)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.eval()


@torch.no_grad()
def plain_logits(model, processor, chats):
    """Logits of the answers' tokens of all chats, [tokens, vocabulary]."""
    rows = [(model(**inputs).logits, labels) for inputs, labels in plain_samples(processor, chats)]
    return torch.cat([logits[0, :-1][labels[0, 1:] != -100] for logits, labels in rows])


@torch.no_grad()
def evaluated_loss(model, processor, chats):
    return plain_loss(model.eval(), plain_samples(processor, chats)).item()


def answers(model, processor, chats):
    """Answers of a model to the questions, by the public interface of transformers."""
    found = []
    for line in read_jsonl(chats / "questions.jsonl"):
        picture = picture_of(chats, line["image"])
        if processor.chat_template is None:
            text = line["question"].removeprefix("<image>\n")
            inputs = processor(images=picture, text=f"<image>{text}", return_tensors="pt")
        else:
            turns = conversation(processor, [{"role": "user", "content": line["question"]}], picture)
            inputs = apply_template(processor, turns, add_generation_prompt=True)
        tokens = model.generate(**inputs, do_sample=False, max_new_tokens=4)[0, inputs["input_ids"].shape[1] :]
        found.append(processor.decode(tokens, skip_special_tokens=True).strip())
    return found


def plain_conversation(model, processor, record, chats):
    """Answers to the questions, each generated after the answers before it, by the public interface of transformers."""
    picture = picture_of(chats, record.get("image"))
    end = "</s>" if "</s>" in processor.tokenizer.get_vocab() else ""  # a template that does not end the answer
    messages, found = [], []
    questions = record["question"]
    for question in [questions] if isinstance(questions, str) else questions:
        messages.append({"role": "user", "content": question})
        inputs = apply_template(processor, conversation(processor, messages, picture), add_generation_prompt=True)
        tokens = model.generate(**inputs, do_sample=False, max_new_tokens=4)[0, inputs["input_ids"].shape[1] :]
        found.append(processor.decode(tokens, skip_special_tokens=True).strip())
        messages.append({"role": "assistant", "content": found[-1] + end})
    return found
