"""State schema of an ensemble of kernel, polytope and linear members."""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, state_at
from streamsvm.core.losses import LEAST_BY_HEAD
from streamsvm.core.math import most_loss
from streamsvm.core.schema import Array, Number, Schema, Substate, address, f32, i64, records
from streamsvm.ensemble.codes import CODES
from streamsvm.ensemble.combined_vote import COMBINATION
from streamsvm.ensemble.label_autocorrelation import AUTOCORRELATION
from streamsvm.ensemble.repeats import REPEATS
from streamsvm.features.scaler import MOST_EVENTS, SCALER
from streamsvm.online.batch import BATCH, MINIBATCH
from streamsvm.online.calibration import CALIBRATION, temperature_field

VOTE_INVERSE_TEMPERATURE = 100.0
# Accuracies start as if an expert had been wrong on this number of events.
VOTE_CAUTION = 30.0
# Weight of log loss per unit of rarity, decay of the class frequencies per label, and upper bound of the rarity. The
# entropy of classes is computed once per block.
RARE_WEIGHT, FREQUENCY_DECAY, MOST_RARITY = 10.0, 0.999, 50.0
# Share of an expert's log loss that each late label removes.
FORGOTTEN = 0.02
# With late labels, accuracies average over this many times as many events.
LATE_WINDOW = 20.0
# Experts with a smaller share of the vote are ignored.
LEAST_VOTE = 1e-4
# Maximum number of rows in a block, and number of learned events per update of the rarity.
BLOCK = 32
LEAST_LOG = math.log(LEAST_BY_HEAD)
# With more than FEW classes, the vote names the classes to which an expert gives at least this probability.
LEAST_NAMED = LEAST_BY_HEAD / 4.0
# One of this many labels updates the noise estimate, which does not affect the predicted classes.
NOISE_SAMPLE = 2
# Loops over experts are padded to a multiple of this number, so that they vectorise without a remainder.
EXPERTS_AT_ONCE = 16
_SHARE = (0.0, 1.0)
BLEND = Schema(
    "blend",
    {
        "rows": Substate(SCALER, "current row, standardised"),
        "ranks": Substate(SCALER, "current row and recent values by rank; other statistics are in `rows`"),
        "whole": Substate(BATCH, "batch of one event that has all columns"),
        "listed": Substate(BATCH, "batch of one event that lists its columns"),
        "block": Substate(MINIBATCH, "rows as the members see them"),
        "codes": Substate(CODES, "columns of few different whole numbers"),
        "combination": Substate(COMBINATION, "combined vote"),
        "repeats": Substate(REPEATS, "correction by the labels of equal rows"),
        "autocorrelation": Substate(AUTOCORRELATION, "label autocorrelation"),
        "calibration": Substate(CALIBRATION, "calibration for noisy labels"),
        "scale": address("code of `scale_rows`"),
        "vote": address("code of `vote_on_rows`"),
        "n_classes": Number("number of known classes", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "is_ranking": Number("whether any member uses ranks", i64),
        "uses_autocorrelation": Number("whether label autocorrelation is learned and used", i64),
        "cached": Number(
            "1 + number of values of the event predicted last, negative if it lists its columns; 0: no scores",
            i64,
        ),
        "expert_decay": Number("decay of the experts' accuracies per label"),
        "n_late": Number(
            "number of late labels whose stored answers updated accuracies",
            i64,
            saved=True,
            bounds=(0.0, MOST_EVENTS),
        ),
        "inverse_temperature": temperature_field("exponent of the vote's probabilities"),
        "rare_weight": Number("weight of log loss in the vote per unit of rarity", start=RARE_WEIGHT),
        "rarity": Number(
            "class imbalance: 1 / entropy - 1 / log(n_classes), 0 for balanced classes",
            saved=True,
            bounds=(0.0, MOST_RARITY),
        ),
        "experts": records(
            ("experts",),
            "heads of all members",
            accuracy=Number("decayed accuracy", saved=True, bounds=_SHARE),
            loss=Number("decayed log loss", saved=True, bounds=(0.0, most_loss(LEAST_BY_HEAD))),
            weight=Number("expert weight: share of the vote", saved=True, bounds=_SHARE),
            inverse_temperature=Number("inverse temperature of its probabilities"),
            best=Number("its most probable class for the current event", i64),
            total=Number("sum of the terms of its softmax"),
        ),
        "frequencies": Array(
            ("classes",), "decayed count of each class, for at most FEW classes", saved=True, bounds=(0.0, MOST_EVENTS)
        ),
        "last": Array(("columns",), "values of the event predicted last"),
        "last_columns": Array(("columns",), "columns it listed", i64),
        "proba": Array(("classes",), "probability of each class"),
        "n_softened": Number("number of classes for which `terms` of the block are computed, 0 for none", i64),
        "bests": Array(("block", "experts"), "most probable class of each expert for each row of the block", i64),
        "terms": Array(
            ("block", "lanes*few"),
            "for at most FEW classes, expert by expert: beta times (score - largest score)",
            f32,
        ),
        "powers": Array(("block", "lanes*few"), "exp of the terms", f32),
        "totals": Array(("block", "lanes"), "sums of the powers of each expert", f32, start=1.0),
        "total_logs": Array(("block", "lanes"), "logarithms of the totals", f32),
        "place": Array(("classes",), "position of each class among the named classes, -1 if not named", i64, start=-1),
        "votes": Array(("classes",), "probabilities of the named classes, and of all other classes together"),
    },
)
blend_at, block_at, batch_at = state_at(BLEND), state_at(MINIBATCH), state_at(BATCH)


@inlined
def padded(n):
    """Round n up to a multiple of EXPERTS_AT_ONCE."""
    return (n + EXPERTS_AT_ONCE - 1) // EXPERTS_AT_ONCE * EXPERTS_AT_ONCE
