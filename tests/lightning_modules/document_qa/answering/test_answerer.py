"""Checks that answers computed in few passes equal those of each chat alone, however prompts are batched."""

import math

import numpy as np
import pytest
import torch

from datamodules.document_qa.batch import FIRST_CHUNK, QUESTION_ONLY, WHOLE
from datamodules.document_qa.prompt.context import ContextSettings
from datamodules.document_qa.samples.evaluation_dataset import DocumentEvaluationDataset
from datamodules.multimodal.batch import Images, Prompts
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from lightning_modules.document_qa.answering import length_buckets
from lightning_modules.document_qa.answering.answerer import QuestionAnswerer
from tests.lightning_modules.document_qa.reader import built
from tests.support.language.uncached_generation import without_cache


def asked_of(data, samples=range(8), **settings):
    chosen = {"option_orders": 4, "evidence": 3, "in_order": True, **settings}
    return DocumentEvaluationDataset(data.validation_set.sample_builder, data.chat_encoder, **chosen)[
        MicroBatchRequest(0, np.array(samples, np.int64))
    ]


def with_images(module, asked, index):
    """[L, C] of one prompt alone."""
    mask = asked.prompts.mask[index]
    before = int(asked.images.views[:index].sum())
    views = slice(before, before + int(asked.images.views[index]))
    images = Images(
        asked.images.pixels[views], asked.images.tile_positions[views], asked.images.views[index : index + 1]
    )
    features = module.features(images).vectors
    tokens = asked.prompts.tokens[index][mask]
    embeddings = module.language_model.embed(tokens)
    embeddings[tokens == module.data.tokenizer.placeholder] = features
    return embeddings


def likelihood(module, embeddings, text):
    """Sum over the tokens, the whole chat in one pass."""
    model = module.language_model
    sequence = torch.cat((embeddings, model.embed(text))).unsqueeze(0)
    states = model.hidden_states(sequence, torch.arange(sequence.shape[1]).unsqueeze(0))[0]
    reported = torch.log_softmax(model.logits(states[len(embeddings) - 1 : -1]), -1)
    return float(reported[torch.arange(len(text)), text].sum())


def written(module, embeddings, end):
    """Token by token, from the beginning each time: the tokens, with the end if it came."""
    model, tokens = module.language_model, []
    while len(tokens) < 4:
        sequence = torch.cat([embeddings, *(model.embed(torch.tensor([token])) for token in tokens)]).unsqueeze(0)
        states = model.hidden_states(sequence, torch.arange(sequence.shape[1]).unsqueeze(0))[0, -1:]
        tokens.append(int(model.logits(states)[0, : model.vocabulary].argmax()))
        if tokens[-1] == end:
            break
    return torch.tensor(tokens)


def by_hand(module, asked, sample):
    """ModelAnswer.options, .confidence, .loss, .terms, .text and costs of chunks, from chats alone."""
    end = module.data.tokenizer.end_of_turn
    indices = [index for index, number in enumerate(asked.prompts.samples.tolist()) if number == sample]
    found, wrote, chunks = {}, {}, {}
    followed = asked.continuations
    for index in indices:
        variant, embeddings = int(asked.variants[index]), with_images(module, asked, index)
        for row in torch.nonzero(followed.prompts == index).flatten().tolist():
            text = followed.tokens[row, : followed.lengths[row]]
            found[variant, int(followed.options[row])] = (likelihood(module, embeddings, text), text)
        if not any(option >= 0 for one, option in found if one == variant) and variant < FIRST_CHUNK:
            text = written(module, embeddings, end)
            wrote[variant] = (likelihood(module, embeddings, text), text)
        if variant >= FIRST_CHUNK:
            chunks[variant] = embeddings
    options = sorted({option for variant, option in found if variant == WHOLE and option >= 0})
    orders = sorted({variant for variant, _ in found if WHOLE <= variant < FIRST_CHUNK})
    per_token = [[found[order, option][0] / len(found[order, option][1]) for order in orders] for option in options]
    means = [sum(some) / len(some) for some in per_token]
    if options:
        answer = found[WHOLE, int(np.argmax(means))]
        right = found[WHOLE, module.data.question(sample).right]
        output = ("", max(torch.softmax(torch.tensor(means), 0)).item())
    else:
        answer, right = wrote[WHOLE], found[WHOLE, -1]
        text = [token for token in answer[1].tolist() if token != end]
        output = (module.data.tokenizer.decode(text), math.exp(answer[0] / len(answer[1])))
    costs = [
        (answer[0] - likelihood(module, chunks[variant], answer[1])) / len(answer[1]) for variant in sorted(chunks)
    ]
    return means, *output, -right[0], len(right[1]), costs


@pytest.mark.parametrize("answer_with", ["text", "letter"])
def test_records_equal_chats_one_by_one(answer_with):
    module, data = built(answer_with=answer_with, context=ContextSettings(tokens=None, images="both"))
    requests = asked_of(data)
    with torch.no_grad():
        records = module.answering.records(requests)
        assert [record.sample for record in records] == list(range(8))
        for record in records:
            means, text, confidence, loss, terms, costs = by_hand(module, requests, record.sample)
            assert record.whole.options == pytest.approx(means, abs=1e-5)
            assert (record.whole.text, record.whole.terms) == (text, terms)
            assert record.whole.confidence == pytest.approx(confidence, abs=1e-5)
            assert record.whole.loss == pytest.approx(loss, abs=1e-4)
            assert [entry.cost for entry in record.evidence] == pytest.approx(costs, abs=1e-5)
            assert len(costs) == (len(requests.contexts[record.sample].chunks) if record.sample < 3 else 0)
            assert bool(record.question_only.options) == bool(data.question(record.sample).options)
    assert len({record.whole.confidence for record in records}) == 8
    assert records[0].whole.options != records[0].question_only.options
    assert records[0].pages == (1, 2, 3)
    assert sorted(records[0].ranked) == [1, 2, 3]


def test_question_only_is_the_question_without_the_document():
    module, data = built()
    requests = asked_of(data, evidence=0, option_orders=1)
    with torch.no_grad():
        for record in module.answering.records(requests):
            indices = torch.nonzero((requests.prompts.samples == record.sample) & (requests.variants == QUESTION_ONLY))
            index = int(indices.squeeze())
            embeddings = with_images(module, requests, index)
            if record.whole.options:
                followed = requests.continuations
                rows = torch.nonzero(followed.prompts == index).flatten().tolist()
                texts = [followed.tokens[row, : followed.lengths[row]] for row in rows]
                expected = [likelihood(module, embeddings, text) / len(text) for text in texts]
                assert record.question_only.options == pytest.approx(expected, abs=1e-5)
            else:
                prompt = requests.prompts.tokens[index][requests.prompts.mask[index]]
                output = without_cache(module.language_model, prompt, 4, [data.tokenizer.end_of_turn])
                assert record.question_only.text == data.tokenizer.decode(output)


def differences(some, others):
    """The largest difference of any number; all else is equal."""

    def numbers(record):
        output = [record.whole, record.question_only]
        yield from (value for each in output for value in (*each.options, each.confidence, each.loss))
        yield from (entry.cost for entry in record.evidence)

    assert [(r.sample, r.whole.text, r.whole.terms) for r in some] == [
        (r.sample, r.whole.text, r.whole.terms) for r in others
    ]
    pairs = zip(some, others, strict=True)
    return max(abs(a - b) for first, second in pairs for a, b in zip(numbers(first), numbers(second), strict=True))


def test_records_do_not_depend_on_what_is_read_together(monkeypatch):
    module, data = built()
    requests = asked_of(data)
    with torch.no_grad():
        expected = module.answering.records(requests)
        calls = []
        read = module._read_prompts
        monkeypatch.setattr(length_buckets, "_MAX_POSITIONS", 300)
        few = QuestionAnswerer(
            lambda part: calls.append(part.prompts.mask.numel()) or read(part),
            data.tokenizer.decode,
            data.tokenizer.end_of_turn,
            4,
            lambda sample: data.question(sample).right,
        )
        assert differences(few.records(requests), expected) < 1e-5
        assert len(calls) > 4
        assert max(calls) <= 300
        alone = [record for sample in range(8) for record in module.answering.records(asked_of(data, [sample]))]
    assert differences(alone, expected) < 1e-5


def test_all_processes_pass_in_step_with_those_that_have_more_to_do(monkeypatch):
    """Passes that only others need change nothing; all processes pass and agree in one and the same order."""
    module, data = built()
    monkeypatch.setattr(length_buckets, "_MAX_POSITIONS", 300)
    events = []
    for network, method, name in ((module.language_model, "decode", "pass"), (module, "features", "image")):
        compute = getattr(network, method)

        def noted(*given, compute=compute, name=name, **options):
            events.append(name)
            return compute(*given, **options)

        monkeypatch.setattr(network, method, noted)

    def ask(asked, agree, sharded=True):
        events.clear()
        answering = QuestionAnswerer(
            module._read_prompts,
            data.tokenizer.decode,
            data.tokenizer.end_of_turn,
            4,
            lambda sample: data.question(sample).right,
            sharded,
            agree,
        )
        with torch.no_grad():
            return answering.records(asked), list(events)

    def by_itself(number):
        events.append(number)
        return number

    def with_the_busy_one(number):
        events.append(max(number, next(agreed)))
        return events[-1]

    records, expected = ask(asked_of(data), by_itself)
    assert differences(records, ask(asked_of(data), by_itself, sharded=False)[0]) < 1e-5
    assert expected.count("pass") > 20
    for size in (2, 0):
        agreed = (event for event in expected if isinstance(event, int))
        some, actual = ask(asked_of(data, range(size)), with_the_busy_one)
        assert actual == expected
        assert some == [] if size == 0 else differences(some, records[:2]) < 1e-5


def test_a_padding_index_yields_no_record():
    module, data = built()
    requests = data.validation_set[MicroBatchRequest(0, np.array([PADDING_INDEX]))]
    with torch.no_grad():
        assert module.answering.records(requests) == []


@pytest.mark.parametrize("answer_with", ["text", "letter"])
@pytest.mark.parametrize("by", [1, 3])
def test_permuting_the_options_permutes_the_prediction(answer_with, by):
    """Asked in all cyclic orders, so that no position is better than another."""
    module, data = built(answer_with=answer_with)
    questions = data.validation_set.sample_builder.questions
    ask = questions.questions

    def turned(epoch, index):
        (question,) = ask(epoch, index)
        return [question._replace(options=question.options[by:] + question.options[:by])]

    with torch.no_grad():
        before = module.answering.records(asked_of(data, evidence=0))
        questions.questions = turned
        after = module.answering.records(asked_of(data, evidence=0))
    for first, second in zip(before, after, strict=True):
        options = first.whole.options
        assert second.whole.options == pytest.approx(options[by:] + options[:by], abs=1e-5)
        if options:
            assert second.whole.chosen == (first.whole.chosen - by) % len(options)
            assert second.whole.confidence == pytest.approx(first.whole.confidence, abs=1e-5)


def test_parts_have_the_images_of_their_prompts():
    numbers, lengths = torch.Generator().manual_seed(0), torch.tensor([5, 2, 9, 2, 7])
    views = torch.tensor([2, 0, 1, 3, 0])
    tokens = torch.randint(0, 50, (5, 9), generator=numbers)
    prompts = Prompts(tokens, torch.arange(9) >= 9 - lengths.unsqueeze(1), torch.arange(5), views * 4)
    images = Images(torch.arange(6).view(6, 1, 1, 1).expand(6, 3, 2, 2), torch.arange(6), views)
    parts = length_buckets.bucket_prompts(prompts, images, [4, 3, 0, 2])
    (part,) = parts
    assert part.indices.tolist() == [3, 0, 4, 2]
    assert part.prompts.mask.shape == (4, 9)
    assert part.images.tile_positions.tolist() == [3, 4, 5, 0, 1, 2]
    assert part.images.views.tolist() == [3, 2, 0, 1]
    assert part.images.pixels[:, 0, 0, 0].tolist() == [3, 4, 5, 0, 1, 2]
    assert part.prompts.placeholders.tolist() == [12, 8, 0, 4]
    assert part.prompts.mask.sum(1).tolist() == [2, 5, 7, 9]


def test_parts_are_bounded_but_a_long_prompt_is_read_alone(monkeypatch):
    monkeypatch.setattr(length_buckets, "_MAX_POSITIONS", 10)
    lengths = torch.tensor([5, 2, 30, 2, 7, 5])
    prompts = Prompts(torch.zeros(6, 30), torch.arange(30) >= 30 - lengths.unsqueeze(1), torch.arange(6), lengths * 0)
    images = Images(torch.zeros(0, 3, 2, 2), torch.zeros(0, dtype=torch.int64), lengths * 0)
    parts = length_buckets.bucket_prompts(prompts, images, list(range(6)))
    assert [part.indices.tolist() for part in parts] == [[1, 3], [0, 5], [4], [2]]
    assert [part.prompts.tokens.shape[1] for part in parts] == [2, 5, 7, 30]
