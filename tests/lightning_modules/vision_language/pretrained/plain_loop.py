"""Trains and answers with a model as a user of transformers would, as the reference of the fine-tuning."""

import torch
from PIL import Image
from torch.nn import functional as F

from datamodules.vision_language.pretrained.processor import ModelProcessor
from tests.distributed.conftest import forge, team  # noqa: F401  (fixtures)
from tests.support.outputs.jsonl import read_jsonl

QUESTION = "what colour is the square?"
RATE = 0.001


def records(chats):
    return [(record["messages"], record.get("image")) for record in read_jsonl(chats / "chats.jsonl")]


def conversation(messages, picture):
    """Messages as users of transformers write them."""
    turns = []
    for message in messages:
        text = {"type": "text", "text": message["content"].removeprefix("<image>\n")}
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
    turns = conversation(messages, picture)
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

    model = AutoModelForImageTextToText.from_pretrained(folder)
    return model, ModelProcessor(str(folder), folder).processor


def plain_losses(folder, chats, steps):
    """Losses of a loop that a user of transformers would write: a chat at a time, mean over the answers' tokens."""
    model, processor = load(folder)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.0)
    samples = []
    for messages, image in records(chats):
        picture = None if image is None else Image.open(chats / image).convert("RGB")
        samples.append(plain_inputs(processor, messages, picture))
    losses = []
    for _ in range(steps):
        terms = []
        for inputs, labels in samples:
            logits = model(**inputs).logits
            terms.append(F.cross_entropy(logits[0, :-1], labels[0, 1:], ignore_index=-100, reduction="sum"))
        loss = torch.stack(terms).sum() / sum(int((labels != -100).sum()) for _, labels in samples)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def answers(folder, chats):
    """Answers of an exported model, by the public interface of transformers."""
    model, processor = load(folder)
    found = []
    for line in read_jsonl(chats / "questions.jsonl"):
        picture = Image.open(chats / line["image"]).convert("RGB")
        if processor.chat_template is None:
            inputs = processor(images=picture, text=f"<image>{QUESTION}", return_tensors="pt")
        else:
            turns = conversation([{"role": "user", "content": line["question"]}], picture)
            inputs = apply_template(processor, turns, add_generation_prompt=True)
        tokens = model.generate(**inputs, do_sample=False, max_new_tokens=4)[0, inputs["input_ids"].shape[1] :]
        found.append(processor.decode(tokens, skip_special_tokens=True).strip())
    return found


def plain_conversation(model, processor, record, chats):
    """Answers to the questions, each generated after the answers before it, by the public interface of transformers."""
    image = record.get("image")
    picture = None if image is None else Image.open(chats / image).convert("RGB")
    end = "</s>" if "</s>" in processor.tokenizer.get_vocab() else ""  # a template that does not end the answer
    messages, found = [], []
    questions = record["question"]
    for question in [questions] if isinstance(questions, str) else questions:
        messages.append({"role": "user", "content": question})
        inputs = apply_template(processor, conversation(messages, picture), add_generation_prompt=True)
        tokens = model.generate(**inputs, do_sample=False, max_new_tokens=4)[0, inputs["input_ids"].shape[1] :]
        found.append(processor.decode(tokens, skip_special_tokens=True).strip())
        messages.append({"role": "assistant", "content": found[-1] + end})
    return found
