"""Recommends the next items of a user of the data or of a given history, and explains why."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cosine_similarity
from typing_extensions import override

from commands.answers.answer_blocks import AnswerBlock, Table
from commands.answers.answer_service import (
    MAX_SEARCH_RESULTS,
    AnswerService,
    Example,
    FieldChoice,
    InputField,
    PickedValue,
    UserInputError,
    UserQuestion,
)
from commands.answers.compared_runs import fingerprint
from commands.answers.families.request_times import request_time_slider
from datamodules.recommender.batch import RankingBatch
from datamodules.recommender.datamodule import InteractionSequences
from datamodules.recommender.events import EventArrays
from datamodules.recommender.reading.predict_histories import Histories
from engine.timestamp import to_seconds
from lightning_modules.recommender.item_scores import DotProductScores
from lightning_modules.recommender.module import SequentialRecommender
from lightning_modules.recommender.networks.attention.kinds import reads_times

_MAX_EVENTS = 50
"""Events that a visitor may pick."""

_SHOWN_EVENTS, _EXPLAINED_EVENTS, _REASONS, _NEAREST, _EXAMPLES = 10, 50, 5, 5, 4


class _Event(NamedTuple):
    item: int  # from 1
    time: int  # seconds since 1970
    row: int = -1  # of the event in the data; -1 for an event that the visitor picked, which has no features


class RecommenderAnswers(AnswerService):
    """Recommends for a user of the data, for a history that the visitor enters, or for both joined.

    Args:
        model: recommender with its weights.
        data: data module of the run, set up for prediction.
    """

    task = "Pick a user or put a history together, and the model recommends what comes next."

    def __init__(self, model: SequentialRecommender, data: InteractionSequences) -> None:
        self._model, self._data = model, data
        self._catalog = data.recommendable
        self._names = [self._catalog.title(item).lower() for item in range(1, self._catalog.num_items + 1)]
        self._numbers = {str(item): number for number, item in enumerate(self._catalog.item_ids, start=1)}
        self._reads_times = reads_times(model.architecture.attention)
        self._latest = int(np.asarray(data.events.times).max(initial=0))
        timed = "The model reads their times, in UTC." if self._reads_times else "The model does not read their times."
        order = f"Search titles, oldest event first. They follow the user's own events. {timed}"
        self.fields = [
            InputField("user", "pick", "User of the data", "Search an id. Leave it empty for a history of your own."),
            InputField(
                "history", "pick", "Events", order, max_count=_MAX_EVENTS, times=self._reads_times,
            ),
        ]  # fmt: skip
        self._reads_request_time = model.architecture.request_time
        if self._reads_request_time:
            text = f"In UTC; empty for {_date(self._latest)} or the last event, whichever is later."
            self.fields.append(InputField("request_time", "time", "Time of the request", text))
        self.about = [
            ("items", f"{self._catalog.num_items:,}"),
            ("users", f"{len(data.user_ids):,}"),
            ("attention", model.architecture.attention),
        ]

    @override
    def examples(self) -> list[Example]:
        rows = np.unique(np.linspace(0, len(self._data.user_ids) - 1, _EXAMPLES).astype(np.int64)).tolist()
        users = [str(self._data.user_ids[row]) for row in rows]
        return [Example(f"user {user}", {"user": [PickedValue(user)._asdict()]}) for user in users]

    @override
    def data_identity(self) -> dict[str, str]:
        return {
            "items": fingerprint(self._catalog.item_ids),
            "users": fingerprint(self._data.user_ids),
            "events": f"{len(self._data.events.items):,}",
        }

    @override
    def search(self, field: InputField, text: str) -> list[FieldChoice]:
        query = text.strip().lower()
        if field.name == "user":
            users = (str(user) for user in self._data.user_ids)
            # Bounds the time of a search.
            matches = sorted((user for user in islice(users, 10**6) if user.lower().startswith(query)), key=len)
            return [FieldChoice(user, user) for user in matches[:MAX_SEARCH_RESULTS]]
        rows = [row for row, name in enumerate(self._names) if query in name]
        rows.sort(key=lambda row: (not self._names[row].startswith(query), len(self._names[row]), row))
        ids, shown = self._catalog.item_ids, rows[:MAX_SEARCH_RESULTS]
        return [FieldChoice(str(ids[row]), self._catalog.title(row + 1)) for row in shown]

    @override
    def answer(self, question: UserQuestion) -> Iterator[AnswerBlock]:
        events = self._events(question)
        at = self._request_time(question.texts.get("request_time", ""), events)
        batch = self._batch([events], at)
        if self._reads_request_time:
            yield request_time_slider("request_time", events[-1].time, at)
        answer = self._model.predict_step(batch, 0)[0][1]
        recommended = answer["recommendations"]
        rows = [[rank, self._title(row["item"]), row["score"]] for rank, row in enumerate(recommended, start=1)]
        counted = "fallback" in answer
        note = "The model knows no event of this history: these are the most popular items." if counted else ""
        columns = ["", "item", "training events" if counted else "score"]
        yield Table("recommendations", "Recommendations", columns, rows, note)
        if events and recommended and not counted:
            best = self._numbers[str(recommended[0]["item"])]
            yield from self._reasons(events, at, best)
        if events:
            last = [
                [self._catalog.title(event.item), *self._shown_time(event)] for event in events[-_SHOWN_EVENTS:][::-1]
            ]
            note = f"The last {len(last)} of {len(events)} events." if len(events) > len(last) else ""
            yield Table(
                "history", "History, newest first", ["item", *(["time"] if self._reads_times else [])], last, note
            )

    def _reasons(self, events: Sequence[_Event], at: int, best: int) -> Iterator[AnswerBlock]:
        """Yield how the score of the best item changes without each event, and the items most alike to it."""
        title = self._catalog.title(best)
        number = min(len(events), self._data.max_length, _EXPLAINED_EVENTS)
        indices = range(len(events) - number, len(events))
        # A single batch: the whole history, and the history without each event.
        shortened = [[*events[:index], *events[index + 1 :]] for index in indices]
        scores = self._scores(self._batch([list(events), *shortened], at))
        values = scores.gather_items(torch.full((len(scores), 1), best, device=scores.states.device))[:, 0].tolist()
        changes = sorted(zip((values[0] - value for value in values[1:]), indices, strict=True), reverse=True)
        if len(events) > 1:
            rows = [
                [self._catalog.title(events[index].item), *self._shown_time(events[index]), round(change, 4)]
                for change, index in changes[:_REASONS]
            ]
            columns = ["event", *(["time"] if self._reads_times else []), "score lost without it"]
            note = f"Of the last {number} events, each is removed once; the score with all of them is {values[0]:.4g}."
            yield Table("reasons", f"Why {title}: the events that matter most", columns, rows, note)
        similarity = cosine_similarity(scores.weight.float(), scores.weight[best - 1 : best].float()).cpu()
        # The item itself is not among its neighbors.
        similarity[best - 1] = -torch.inf
        nearest = similarity.topk(min(_NEAREST, len(similarity) - 1)).indices.tolist()
        in_history = {event.item for event in events}
        near = [
            [self._catalog.title(row + 1), "yes" if row + 1 in in_history else "", round(float(similarity[row]), 3)]
            for row in nearest
        ]
        yield Table("nearest", f"Items most alike to {title}", ["item", "in the history", "cosine"], near)

    def _events(self, question: UserQuestion) -> list[_Event]:
        """Return the events of the user and of the visitor, oldest first."""
        events: list[_Event] = []
        for user in question.picked.get("user", ()):
            events += self._events_of(user.value)
        picked = question.picked.get("history", ())
        picked_events = [self._event(item, events) for item in picked]
        if not events and not picked_events:
            raise UserInputError("found no user and no event; pick a user, or search a title")
        history = [*events, *picked_events]
        return sorted(history, key=lambda event: event.time) if self._reads_times else history

    def _events_of(self, user: str) -> list[_Event]:
        row = next((row for row, user_id in enumerate(self._data.user_ids) if str(user_id) == user), None)
        if row is None:
            raise UserInputError(f"user {user}: the data have no such user")
        store = self._data.events
        start, end = int(store.offsets[row]), int(store.offsets[row + 1])
        columns = np.asarray(store.items[start:end]).tolist(), np.asarray(store.times[start:end]).tolist()
        return [_Event(*event) for event in zip(*columns, range(start, end), strict=True)]

    def _event(self, picked: PickedValue, before: Sequence[_Event]) -> _Event:
        number = self._numbers.get(picked.value)
        if number is None:
            raise UserInputError(f"item {picked.value}: the data have no such item")
        if self._reads_times:
            if not picked.time:
                raise UserInputError(f"{self._catalog.title(number)}: no time is given, and the model reads times")
            return _Event(number, _parse_time(picked.time, self._catalog.title(number)))
        # A model without times gets the time of the last event, so that times never decrease.
        return _Event(number, before[-1].time if before else 0)

    def _request_time(self, text: str, events: Sequence[_Event]) -> int:
        last = events[-1].time
        if not text.strip():
            stated_time = self._data.prediction_input.request_time
            return max(self._latest if stated_time is None else stated_time, last)
        at = _parse_time(text.strip(), "Time of the request")
        if at < last:
            raise UserInputError(f"Time of the request: found {_date(at)}, before the last event, {_date(last)}")
        return at

    def _batch(self, histories: Sequence[Sequence[_Event]], at: int) -> RankingBatch:
        ends = np.cumsum([0, *map(len, histories)])
        items = np.array([event.item for history in histories for event in history], np.int32)
        times = np.array([event.time for history in histories for event in history], np.int64)
        rows_of_data = np.array([event.row for history in histories for event in history], np.int64)
        features = self._data.events.features
        event_features = None if features is None else features.select_rows(rows_of_data)
        events = EventArrays(ends, items, times, self._catalog.num_items, event_features)
        users = [str(number) for number in range(len(histories))]
        rows = Histories(events, users, request_times=np.full(len(users), at, np.int64))
        batch = self._data.histories_batch(rows)
        moved: RankingBatch = self._model.transfer_batch_to_device(batch, self._model.device, 0)
        return moved

    def _scores(self, batch: RankingBatch) -> DotProductScores:
        scores = self._model.next_item_scores(batch.history)
        assert isinstance(scores, DotProductScores), "a table is divided over several ranks only"
        return scores

    def _title(self, item: Any) -> str:
        return self._catalog.title(self._numbers[str(item)])

    def _shown_time(self, event: _Event) -> list[str]:
        return [_date(event.time)] if self._reads_times else []


def _parse_time(text: str, what: str) -> int:
    seconds = to_seconds(text)
    if seconds is None:
        raise UserInputError(f"{what}: found {text!r}, expected an ISO 8601 date, such as 2020-01-31T18:00")
    return int(seconds)


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
