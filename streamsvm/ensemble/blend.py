"""The state of an ensemble of kernel, polytope and linear members."""

from __future__ import annotations

import math

from streamsvm.core.access import state_at
from streamsvm.core.jit import inlined
from streamsvm.core.losses import LEAST_BY_HEAD
from streamsvm.core.math import most_loss
from streamsvm.core.schema import Array, Number, Schema, Substate, address, f32, i64, records
from streamsvm.ensemble.label_autocorrelation import (
    AUTOCORRELATION,
)
from streamsvm.ensemble.stacked_vote import STACK
from streamsvm.features.scaler import (
    MOST_EVENTS,
    SCALER,
)
from streamsvm.online.batch import BATCH
from streamsvm.online.calibration import CALIBRATION, inverse_temperature
from streamsvm.online.minibatch import MINIBATCH

VOTE_INVERSE_TEMPERATURE = 100.0
# Accuracies begin as if an expert had been wrong on so many events.
VOTE_CAUTION = 30.0
# What log loss has to say beside accuracy where classes are rare, and how far: the entropy of classes is over so many
# labels, is looked at when a block ends, and rarity grows no further.
RARE_WEIGHT, FREQUENCY_DECAY, MOST_RARITY = 10.0, 0.999, 50.0
# So much of an expert's log loss is gone with each label that comes late.
FORGOTTEN = 0.02
# By labels that come late accuracies are over so many times as many events.
LATE_WINDOW = 20.0
# Experts with less than this share of the vote are not heard.
LEAST_VOTE = 1e-4
# The most rows of a block. How even the classes are is measured once for so many events learned.
BLOCK = 32
LEAST_LOG = math.log(LEAST_BY_HEAD)
# Where classes are many, those are voted on that an expert gives so much.
LEAST_NAMED = LEAST_BY_HEAD / 4.0
# What labels are worth where they are noisy is learned from one of so many: predictions do not hang on it.
NOISE_SAMPLE = 2
# Loops over experts go over a multiple of so many: then they are vector instructions, without a remainder.
EXPERTS_AT_ONCE = 16
_SHARE = (0.0, 1.0)
BLEND = Schema(
    "blend",
    {
        "rows": Substate(SCALER, "rows on their way, standardised"),
        "ranks": Substate(
            SCALER, "rows on their way, by ranks; what these are among alone: statistics are those of `rows`"
        ),
        "whole": Substate(BATCH, "what is asked of a single event that has all columns"),
        "listed": Substate(BATCH, "what is asked of one that lists its columns"),
        "block": Substate(MINIBATCH, "the rows that members see"),
        "stack": Substate(STACK, "the second vote"),
        "autocorrelation": Substate(AUTOCORRELATION, "what the labels before say"),
        "calibration": Substate(CALIBRATION, "what probabilities are worth where labels are noisy"),
        "scale": address("`scale_rows`"),
        "vote": address("`vote_on_rows`"),
        "n_classes": Number("classes known", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "is_ranking": Number("whether any member sees ranks", i64),
        "uses_autocorrelation": Number("whether label autocorrelation is learned, and heard", i64),
        "cached": Number(
            "1 + the length of the event last predicted, whose scores are known, 0 where they are not; "
            "negative where it lists its columns",
            i64,
        ),
        "expert_decay": Number("of the experts' accuracies"),
        "n_late": Number(
            "labels learned by which answers were judged that had been kept", i64, saved=True, bounds=(0.0, MOST_EVENTS)
        ),
        "inverse_temperature": inverse_temperature("the exponent of the vote's probabilities"),
        "rare_weight": Number("what log loss has to say by it", start=RARE_WEIGHT),
        "rarity": Number("how far classes are from even", saved=True, bounds=(0.0, MOST_RARITY)),
        "experts": records(
            ("experts",),
            "the heads of all members",
            accuracy=Number("the decayed accuracy", saved=True, bounds=_SHARE),
            loss=Number("the decayed log loss", saved=True, bounds=(0.0, most_loss(LEAST_BY_HEAD))),
            weight=Number("the expert weight: its share of the vote", saved=True, bounds=_SHARE),
            inverse_temperature=Number("how many f its probabilities are the softmax of"),
            best=Number("the class it finds likeliest for the current event", i64),
            total=Number("the sum of the terms of its softmax"),
        ),
        "frequencies": Array(
            ("classes",), "how often each class came, decayed; of few classes", saved=True, bounds=(0.0, MOST_EVENTS)
        ),
        "last": Array(("columns",), "the values of the event last predicted"),
        "last_columns": Array(("columns",), "the columns it listed", i64),
        "proba": Array(("classes",), "the probability of each class"),
        "n_softened": Number("of so many classes the terms of the rows of the block are there, 0 for none", i64),
        "bests": Array(("block", "experts"), "the classes that experts find likeliest for the rows of the block", i64),
        "terms": Array(
            ("block", "lanes*few"),
            "of few classes, one expert after another: beta times how far scores are below the best",
            f32,
        ),
        "powers": Array(("block", "lanes*few"), "exp of these", f32),
        "totals": Array(("block", "lanes"), "their sums", f32, start=1.0),
        "total_logs": Array(("block", "lanes"), "the logarithms of these", f32),
        "place": Array(("classes",), "where each class is among those named, -1 for nowhere", i64, start=-1),
        "votes": Array(("classes",), "their probabilities, and that of all others together"),
    },
)
blend_at, block_at, batch_at = state_at(BLEND), state_at(MINIBATCH), state_at(BATCH)


@inlined
def padded(n):
    """n, rounded up to a multiple of EXPERTS_AT_ONCE."""
    return (n + EXPERTS_AT_ONCE - 1) // EXPERTS_AT_ONCE * EXPERTS_AT_ONCE
