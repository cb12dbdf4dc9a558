"""Vote of a learner and its refitted models by fixed share.

Every member has a weight. Each label multiplies the weight by the probability that the member gave to the label, to the
power `LEARNING_RATE`. A share `SHARE` of all weight is distributed evenly. If the concept of a model returns, the model
therefore regains its weight within a few events. The learner is member 0. It predicts alone unless the vote was
recently more accurate.

A member of little weight is inactive. Inactive members do not vote. They are evaluated on one labelled event in
`SAMPLE`, to keep their weight up to date. The set of active members changes only when the number of labelled events is
a multiple of `BLOCK`. Members can therefore be evaluated on several rows in one call.

Notes
-----
M. Herbster and M. K. Warmuth, "Tracking the best expert", Machine Learning 32, 1998.
"""

from __future__ import annotations

import math

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, NUMBERS, StateType, address_of, call_pointer, inlined, jit_holding_gil, kernel
from streamsvm.core.losses import best_class
from streamsvm.core.schema import Array, Number, Schema, Substate, i64, records
from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.refit.frozen_models import ANSWERED, ASKED, QUERY

BLOCK = 64
LEARNING_RATE, SHARE, LEAST_PROBABILITY, FIRST_WEIGHT = 0.4, 0.01, 0.01, math.exp(-6.0)
# The vote is used if its recent accuracy exceeds the learner's accuracy by the margin.
RATE, MARGIN = 0.0005, 0.001
# Maximum number of active models: those with more weight than the even share, and new ones.
MOST_ACTIVE, LEAST_WEIGHT, FIRST_EVENTS, SAMPLE = 3, 1e-3, 512.0, 16
# Accuracies and mean weights are averages over about this many events.
ACCURACY_WINDOW, USE_WINDOW = 500.0, 10_000.0

_UNIT = (0.0, 1.0)
_COUNT = (0.0, MOST_EVENTS)

MODEL_VOTE = Schema(
    "model_vote",
    {
        "seen": Number("labelled events", saved=True, bounds=_COUNT),
        "n_classes": Number("known classes", i64, saved=True, bounds=_COUNT),
        "advantage": Number("recent accuracy of the vote minus that of the learner", saved=True, bounds=(-1.0, 1.0)),
        "members": records(
            ("members",),
            "the learner and the refitted models",
            present=Number("whether the place is used", i64, saved=True, bounds=_UNIT),
            active=Number("whether it votes", i64, saved=True, bounds=_UNIT),
            entered=Number("labelled events before it entered", saved=True, bounds=_COUNT),
            evaluated=Number("labelled events it was evaluated on", saved=True, bounds=_COUNT),
            accuracy=Number("recent accuracy", saved=True, bounds=_UNIT),
            weight=Number("weight in the vote", saved=True, bounds=_UNIT),
            use=Number("mean recent weight", saved=True, bounds=_UNIT),
        ),
        "vote": Array(("classes",), "weighted mean of the probabilities"),
    },
)

VOTES = Schema(
    "votes",
    {
        "query": Substate(QUERY, "the rows and the members' probabilities"),
        "labels": Array(("asked",), "class of each row, -1 if unknown", i64, external=True),
        "codes": Array(("asked",), "predicted class of each row, -1 if none", i64, external=True),
        "proba": Array(("asked", "classes"), "probabilities of all classes", external=True),
        "models": Array(
            ("members",),
            "the models of the members",
            fields={
                "run": Number("address of the function that evaluates it, 0 if it is not compiled", i64),
                "state": Number("address of its state", i64),
            },
            external=True,
        ),
    },
)

MODEL = dict(VOTES.of(Array))["models"].element


@inlined
def is_evaluated(state, k, seen, label):
    """Return whether member k is evaluated on a row after `seen` labelled events."""
    member = state.members[k]
    return member.present > 0 and (member.active > 0 or (label >= 0 and (seen + k) % SAMPLE == 0))


@kernel
def mark_rows(state, votes, k, first, end):
    """Mark rows `first` to `end - 1` on which member k must be evaluated.

    Returns the number of marked rows.
    """
    asked, seen, n = votes.query.asked, int(state.seen), 0
    for i in range(first, end):
        label = votes.labels[i]
        if asked[k, i] != ANSWERED:
            asked[k, i] = ASKED if is_evaluated(state, k, seen, label) else 0
            n += asked[k, i]
        seen += 1 if label >= 0 else 0
    return n


@kernel
def evaluate_models(state, votes, first):
    """Evaluate the compiled models on the rows from `first` to the end of the block.

    Returns the end of the block.
    """
    query, end, left = votes.query, first, BLOCK - int(state.seen) % BLOCK
    while end < votes.labels.size and left > 0:
        left -= 1 if votes.labels[end] >= 0 else 0
        end += 1
    for k in range(1, votes.models.size):
        model = votes.models[k]
        if model.run == 0 or mark_rows(state, votes, k, first, end) == 0:
            continue
        query.member, query.first, query.end = k, first, end
        call_pointer(model.run, (model.state, address_of(query)))
    return end


@inlined
def combine(state, votes, i, n):
    """Compute the weighted mean of the active members' probabilities for row i."""
    members, vote, answers, total, n_active = state.members, state.vote, votes.query.proba, 0.0, 0
    for c in range(n):
        vote[c] = 0.0
    for k in range(members.size):
        if members[k].present > 0 and members[k].active > 0:
            n_active += 1
            total += members[k].weight
            for c in range(n):
                vote[c] += members[k].weight * answers[k, i, c]
    for c in range(n):
        vote[c] = vote[c] / total if n_active > 1 else answers[0, i, c]


@inlined
def is_right(proba, n, label):
    """Return 1 if the label is the most probable of n classes, else 0."""
    return 1.0 if best_class(proba, 0, n) == label else 0.0


@inlined
def update_weights(state, votes, i, n, label):
    """Update advantage, accuracies and weights with the label of row i."""
    members, answers, total, n_present = state.members, votes.query.proba, 0.0, 0
    gain = is_right(state.vote, n, label) - is_right(answers[0, i], n, label)
    state.advantage += RATE * (gain - state.advantage)
    voted = max(state.vote[label], LEAST_PROBABILITY) if label < n else LEAST_PROBABILITY
    for k in range(members.size):
        member = members[k]
        if member.present == 0:
            continue
        n_present += 1
        likelihood = voted  # without an evaluation the weight keeps its share
        if is_evaluated(state, k, int(state.seen), label):
            likelihood = max(answers[k, i, label], LEAST_PROBABILITY) if label < n else LEAST_PROBABILITY
            member.evaluated += 1.0
            rate = max(1.0 / ACCURACY_WINDOW, 1.0 / member.evaluated)
            member.accuracy += rate * (is_right(answers[k, i], n, label) - member.accuracy)
        member.weight *= likelihood**LEARNING_RATE
        total += member.weight
    for k in range(members.size):
        member = members[k]
        if member.present > 0:
            member.weight = (1.0 - SHARE) * member.weight / total + SHARE / n_present
            rate = max(1.0 / USE_WINDOW, 1.0 / (state.seen - member.entered + 1.0))
            member.use += rate * (member.weight - member.use)


@inlined
def select_active(state):
    """Choose the members that vote in the next block."""
    members = state.members
    for k in range(1, members.size):
        n_heavier = 0
        for other in range(1, members.size):
            is_before = members[other].weight == members[k].weight and other < k
            n_heavier += 1 if members[other].weight > members[k].weight or is_before else 0
        if members[k].weight > SHARE + LEAST_WEIGHT and n_heavier < MOST_ACTIVE:
            members[k].active = 1
        elif state.seen >= members[k].entered + FIRST_EVENTS:
            members[k].active = 0


@kernel
def vote_on_rows(state, votes, first, end):
    """Predict the evaluated rows `first` to `end - 1`, and learn from their labels."""
    for i in range(first, end):
        label, n, best = votes.labels[i], state.n_classes, -1
        if n > 0:
            combine(state, votes, i, n)
            chosen = state.vote if state.advantage > MARGIN else votes.query.proba[0, i]
            for c in range(n):
                votes.proba[i, c] = chosen[c]
            best = best_class(chosen, 0, n)
            if label >= 0:
                update_weights(state, votes, i, n, label)
        votes.codes[i] = best
        if label >= 0:
            state.n_classes = max(n, label + 1)
            state.seen += 1.0
            if int(state.seen) % BLOCK == 0:
                select_active(state)


@jit_holding_gil
def begin_row(state, votes, row, learner, label):
    """Evaluate the compiled models on a single row, if it differs from the last one."""
    query, is_same = votes.query, True
    for j in range(row.size):
        is_same = is_same and (query.values[j] == row[j] or (math.isnan(query.values[j]) and math.isnan(row[j])))
        query.values[j] = row[j]
    for k in range(0 if is_same else query.asked.shape[0]):
        query.asked[k, 0] = 0
    for c in range(learner.size):
        query.proba[0, 0, c] = learner[c]
    votes.labels[0] = label
    evaluate_models(state, votes, 0)


@jit_holding_gil
def vote_on_row(state, votes):
    """Predict a single evaluated row, learn from its label, and return the class."""
    vote_on_rows(state, votes, 0, 1)
    return votes.codes[0]


@jit_holding_gil
def add_member(state, n_classes):
    """Return a place for a new model.

    Without a free place, it is the place of the model with the smallest mean weight.
    """
    members, k = state.members, 1
    for other in range(2, members.size):
        if members[k].present > 0 and (members[other].present == 0 or members[other].use < members[k].use):
            k = other
    member, learner = members[k], members[0]
    total = -member.weight * member.present
    for other in range(members.size):
        total += members[other].weight * members[other].present
    for other in range(members.size):
        members[other].weight *= (1.0 - FIRST_WEIGHT) / total
    member.present, member.active, member.entered, member.evaluated = 1, 1, state.seen, 0.0
    member.accuracy, member.weight, member.use = learner.accuracy, FIRST_WEIGHT, FIRST_WEIGHT
    state.n_classes = n_classes
    return k


_STATE, _VOTES = StateType(MODEL_VOTE.name), StateType(VOTES.name)

ENTRY_POINTS = {
    "add_member": EntryPoint(add_member, (_STATE, INTEGER)),
    "begin_row": EntryPoint(begin_row, (_STATE, _VOTES, NUMBERS, NUMBERS, INTEGER)),
    "vote_on_row": EntryPoint(vote_on_row, (_STATE, _VOTES)),
    "mark_rows": EntryPoint(mark_rows, (_STATE, _VOTES, INTEGER, INTEGER, INTEGER)),
    "evaluate_models": EntryPoint(evaluate_models, (_STATE, _VOTES, INTEGER)),
    "vote_on_rows": EntryPoint(vote_on_rows, (_STATE, _VOTES, INTEGER, INTEGER)),
}
