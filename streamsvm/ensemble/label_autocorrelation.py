"""Label autocorrelation: correction of a vote by the previous labels.

Labels of a stream often depend on earlier labels: they persist, or follow the time of day. `label_baselines` predicts
the label from previous labels alone, with the probabilities Q, and estimates the class frequencies M_0. The *lift*
log Q(c) - log M_0(c) is the information of the previous labels beyond the class frequencies. It changes the
probabilities p of a vote to p'(c) ~ p(c)^beta exp(exponent lift(c)). The exponents `exponent` and beta follow the
gradient of the log loss of p'.

Predictions are a mixture of p, p' and Q. The weights of the mixture are posterior probabilities under a small
probability of a switch (fixed share). Its log loss is therefore close to the best of the three, also after a change.

The class named by the mixture is not always the most accurate answer. Other answers are the classes named by p, p' and
Q, the last label, the label one season ago, and the most frequent class. The decayed accuracies of all answers are
compared. If another answer has been more accurate than the mixture, the two classes change their order in the
probabilities.

With late labels, log losses are biased: when a label arrives, p and Q know labels that were unknown at the prediction.
Only the answers were kept. While most labels are late, p replaces the mixture unless another answer has been more
accurate by LATE_ADVANTAGE. `late_mixture` then corrects the probabilities.

Contexts at prediction time
---------------------------
An event is counted under the labels known when it was last *predicted*, which with late labels are not the labels just
before its own. A note of each prediction is kept until its event, or an event predicted later, is learned. Labels must
arrive in the order of events. An event without a note was not predicted and is counted under the current labels. The
exception is an event whose note may be lost: overwritten, skipped, or made before its columns were known.

Events are identified by the content of their rows. If an equal row is learned while a note waits, there are two cases.
In the first case the event was predicted again, and the older note is obsolete. In the second case another event with
an equal row waits for its own label, and the oldest note applies. The decayed share `distinct` of the second case
decides.

A caller that stores events until their labels arrive can store a memory with each, see `label_memories`.

Weight of the lift
------------------
The last label is less informative for each further event predicted before the next label. After k notes since the last
label, the lift of a prediction has the weight r^(k - reach), at most 1. `reach` is the recent number of predictions
without a label before learned events, at most MOST_REACH. It is 0 if each event gets its label before the next
prediction.

The factor r measures how persistent the last label l is beyond its frequency: (M_1(l | l) - M_0(l)) / (1 - M_0(l)),
limited to the range from 0 to MOST_STAY. If labels persist with a fixed probability and are drawn anew otherwise, r^k
is the decay of the k-step transition. If labels cycle, r is 0. Repeated predictions of one event count once. Batches
that are only predicted have no order, and the weight is 0. Learning does not depend on the weight.

Before the first label no column is known, and rows cannot be distinguished. Each prediction is then noted as an event
whose note is lost. Such events count as waiting only while predictions come between the labels.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined, kernel
from streamsvm.core.losses import LEAST_BY_VOTE, best_class, fast_softmax_terms, scale_terms
from streamsvm.core.math import log_of, most_loss
from streamsvm.core.schema import Array, Number, Schema, i64
from streamsvm.ensemble import label_baselines, late_mixture
from streamsvm.ensemble.label_baselines import (
    ANSWERS,
    BY_EXPECTED,
    BY_FREQUENCY,
    BY_LAST,
    BY_MIXTURE,
    BY_SEASON,
    BY_VOTE,
    POSITIVE_SHARE,
    append_label,
    context,
    count_label,
    learn_accuracies,
    learn_shares,
    most_accurate,
    n_answers,
    n_others,
    place_in,
    predict_label,
    put_ahead,
    season_label,
    share_of,
    update_shares,
)
from streamsvm.ensemble.late_mixture import RUN_RATE, mix_late
from streamsvm.ensemble.notes import LAGS, NOTES, NOW, UNKNOWN, drop, n_before, recall, same_labels
from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.online.calibration import TEMPERATURE_RATE, calibrated, surprise, temperature_field

LOSS_RATE = 0.002
MOST_EXPONENT = 3.0
# Label autocorrelation counts as used if it reduces the log loss by at least this amount.
MARGIN = 0.003
# Probabilities in the mixture: p of the vote, p', and Q.
VOTE, CORRECTED, EXPECTED = range(3)
MIXED = 3
# Accuracies of the answers average over about ANSWER_WINDOW labels and start as if ANSWER_CAUTION answers had been
# wrong. An answer replaces the mixture if it was right once more within the window.
ANSWER_WINDOW, ANSWER_CAUTION = 1000.0, 30.0
# The accuracies of mixture and vote start higher, so that the first right guesses of a baseline do not replace them.
FIRST_ACCURACY = 0.3
# Least gain in accuracy for an answer to replace the vote if labels are late, and rate of the share of such labels.
LATE_ADVANTAGE, LATE_RATE = 0.01, 0.02
# Largest factor of the lift's weight per further prediction without a label; weights below LEAST_WEIGHT become 0.
MOST_STAY, LEAST_WEIGHT = 0.5, 0.01
# Upper bound of `reach`, and its decay per label.
MOST_REACH, REACH_DECAY = 8.0, 0.998
# Upper bound of the number of memories per label.
MOST_STRIDE = 16.0
_LOSS = (0.0, most_loss(LEAST_BY_VOTE))
_LABEL = (-1.0, MOST_EVENTS)
AUTOCORRELATION = Schema(
    "autocorrelation",
    {
        "inverse_temperature": temperature_field("exponent of the vote's probabilities"),
        "exponent": Number("exponent of the lift", saved=True, bounds=(0.0, MOST_EXPONENT)),
        "plain_loss": Number("decayed log loss without autocorrelation", saved=True, bounds=_LOSS),
        "autocorrelated_loss": Number("decayed log loss with autocorrelation", saved=True, bounds=_LOSS),
        "oldest": Number("index of the oldest note", i64, saved=True, bounds=(0.0, NOTES - 1.0)),
        "n_notes": Number("number of notes", i64, saved=True, bounds=(0.0, NOTES)),
        "n_fresh": Number("number of notes made since the last learned event", i64, saved=True, bounds=(0.0, NOTES)),
        "n_lost": Number(
            "number of events that may still be learned though their notes are lost",
            i64,
            saved=True,
            bounds=(0.0, MOST_EVENTS),
        ),
        "late": Number("decayed share of late labels", saved=True, bounds=(0.0, 1.0)),
        "distinct": Number("decayed share of equal rows that were separate events", saved=True, bounds=(0.0, 1.0)),
        "last_key": Number("key of the event learned last, -1 if there is none", start=-1.0, saved=True),
        "keys": Array(("notes",), "keys of the predicted events", saved=True),
        "noted": Array(("notes", LAGS), "labels known at the predictions", i64, saved=True, bounds=_LABEL),
        "made": Array(
            ("notes",), "number of labels learned before the predictions", i64, saved=True, bounds=(0.0, MOST_EVENTS)
        ),
        "left": Array(
            ("notes",), "whether an equal row was learned while the note waited", i64, saved=True, bounds=(0.0, 1.0)
        ),
        "weight": Number("weight of the lift for the current event", start=1.0),
        "n_remembered": Number("number of predictions with a memory", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "n_followed": Number(
            "number of these up to the event of the last label", i64, saved=True, bounds=(0.0, MOST_EVENTS)
        ),
        "season_gain": Number(
            "mean gain in accuracy of the season over the vote, for events predicted before the first label",
            saved=True,
            bounds=(-1.0, 1.0),
        ),
        "stride": Number("decayed number of memories per label", start=1.0, saved=True, bounds=(1.0, MOST_STRIDE)),
        "waiting": Number("number of labels expected between the last label and that of the current event", i64),
        "reach": Number(
            "recent number of predictions without a label before a learned event",
            saved=True,
            bounds=(0.0, MOST_REACH),
        ),
        "mixed_shares": Array(
            (MIXED,), "posterior weights of p, p' and Q", start=1.0 / MIXED, saved=True, bounds=POSITIVE_SHARE
        ),
        "accuracies": Array((ANSWERS,), "decayed accuracies of the answers", saved=True, bounds=(0.0, 1.0)),
        "answers": Array((ANSWERS,), "positions of the answers among the classes voted on, or -1", i64, start=-1),
        "mixtures": Array((MIXED, "classes"), "probabilities p, p' and Q for the current event"),
        "logs": Array(("classes",), "log probabilities of the vote"),
        "lifts": Array(("classes",), "lift of each class"),
        "mixture": Array(("classes",), "probabilities of the mixture"),
        **label_baselines.FIELDS,
        **late_mixture.FIELDS,
    },
)


@kernel
def find_lift(state, labels, n):
    """Write the weighted lifts of n classes after the previous labels to `lifts`."""
    lifts, base, expected = state.lifts, state.base, state.expected
    predict_label(state, labels, n)
    for c in range(n):
        lifts[c] = state.weight * log_of(expected[c] / max(base[c], LEAST_BY_VOTE))
        state.mixtures[EXPECTED, c] = expected[c]


@kernel
def combine(state, n):
    """Compute p' from `logs` and `lifts`."""
    corrected, beta, exponent = state.mixtures[CORRECTED], state.inverse_temperature, state.exponent
    for c in range(n):
        corrected[c] = beta * state.logs[c] + exponent * state.lifts[c]
    if n_others(state, n) > 1:
        corrected[n - 1] += log_of(float(n_others(state, n)))
    total = fast_softmax_terms(corrected, 0, n, 1.0, corrected, 0)
    scale_terms(corrected, 0, n, 1.0 / total)


@inlined
def prefer_answer(state, n):
    """Give the largest probability of the mixture to the most accurate answer."""
    mixture, answers, is_late = state.mixture, state.answers, state.late > 0.5
    usual, advantage = (BY_VOTE, LATE_ADVANTAGE) if is_late else (BY_MIXTURE, 1.0 / ANSWER_WINDOW)
    n_used = ANSWERS if state.weight == 1.0 else BY_EXPECTED
    best = most_accurate(state.accuracies, answers, n_used, usual, advantage)
    if is_late and best == usual:
        for c in range(n):
            mixture[c] = state.mixtures[VOTE, c]
        return
    put_ahead(mixture, answers[best], answers[BY_MIXTURE])


@kernel
def mix(state, labels, n):
    """Compute the mixture of p, p' and Q, and the positions of all answers.

    If the lift has a weight below 1, p' takes part of the weight of Q.
    """
    mixture, rows, shares, answers = state.mixture, state.mixtures, state.mixed_shares, state.answers
    of_expected = state.weight * shares[EXPECTED]
    of_corrected = shares[CORRECTED] + shares[EXPECTED] - of_expected
    for c in range(n):
        mixture[c] = shares[VOTE] * rows[VOTE, c] + of_corrected * rows[CORRECTED, c] + of_expected * rows[EXPECTED, c]
    n_named = n_answers(state, n)
    answers[BY_MIXTURE] = best_class(mixture, 0, n_named)
    for j in range(MIXED):
        answers[BY_VOTE + j] = best_class(rows[j], 0, n_named)
    answers[BY_LAST] = place_in(state, labels[0], n)
    answers[BY_SEASON] = place_in(state, state.ago, n)
    answers[BY_FREQUENCY] = best_class(state.base, 0, n_named)
    prefer_answer(state, n)


@kernel
def mix_after(state, labels, n):
    """Compute lift, p' and mixture after these labels."""
    find_lift(state, labels, n)
    combine(state, n)
    mix(state, labels, n)


@kernel
def add_autocorrelation(state, n, proba):
    """Replace the probabilities of the n classes voted on by the mixture.

    The log probabilities must be in `logs`.
    """
    for c in range(n):
        state.mixtures[VOTE, c] = proba[c]
    if state.weight > 0.0:
        state.ago = season_label(state, state.n_learned, state.waiting)
        mix_after(state, state.recent, n)
        for c in range(n):
            proba[c] = state.mixture[c]
    else:
        state.answers[:] = -1
        state.answers[BY_MIXTURE] = state.answers[BY_VOTE] = best_class(proba, 0, n_answers(state, n))
    mix_late(state, n, proba)


@kernel
def weigh(state, key, n):
    """Return the weight of the lift for an event predicted now, with n classes."""
    steps, last, label = state.n_fresh, (state.oldest + state.n_notes - 1) % NOTES, state.recent[0]
    if steps > 0 and state.n_notes > 0 and state.keys[last] == key:
        steps -= 1
    beyond = steps - int(state.reach + 0.5)
    if beyond <= 0 or label < 0:
        return 1.0
    stays, share = share_of(state, context(state.recent, 1), label, n), share_of(state, 0, label, n)
    stay = min(max((stays - share) / (1.0 - share), 0.0), MOST_STAY)
    weight = stay**beyond
    return weight if weight >= LEAST_WEIGHT else 0.0


@inlined
def is_used(state):
    """Return whether label autocorrelation recently reduced the log loss.

    The plain vote must also have less than half of the weight of the mixture.
    """
    return state.mixed_shares[VOTE] < 0.5 and state.autocorrelated_loss < state.plain_loss - MARGIN


@inlined
def start_accuracies(state):
    """Set the accuracies of mixture and vote before the first label on time."""
    state.accuracies[BY_MIXTURE] = state.accuracies[BY_VOTE] = FIRST_ACCURACY


@kernel
def learn_autocorrelation(state, key, n, label, place):
    """Learn the label of an event predicted among n classes.

    Parameters
    ----------
    key
        Key of the row, see `notes.row_key`.
    n
        Number of classes voted on.
    label
        Class of the event.
    place
        Position of the class among those voted on, at least n for a new class.
    """
    at = recall(state, key)
    is_spent = at < 0 or (state.distinct <= 0.5 and state.n_fresh == 0)
    if is_spent and key == state.last_key and label == state.recent[0]:
        return  # a repetition of the last event, for example by bagging: it does not follow itself
    made = state.made[at] if at >= 0 else state.n_learned
    if state.n_learned == 0:
        start_accuracies(state)
    if n >= 2 and place < n and at != UNKNOWN:
        state.ago = season_label(state, made, 0)
        if at >= 0 and not same_labels(state, at):
            mix_after(state, state.noted[at], n)
        learn_mixture(state, state.noted[at] if at >= 0 else state.recent, n, place)
        learn_accuracies(state.accuracies, state.answers, place, answer_rate(state))
    if at == NOW:
        count_label(state, state.recent, label, LAGS)
    else:
        count_label(state, state.noted[max(at, 0)], label, LAGS if at >= 0 else 0)
    if at >= 0:
        state.reach = min(max(REACH_DECAY * state.reach, n_before(state, at)), MOST_REACH)
        drop(state, key)
    elif at == UNKNOWN:
        state.n_lost -= 1
    record_label(state, key, label, made, made)


@inlined
def record_label(state, key, label, made, before):
    """Make a label the last one known, of an event predicted after `made` labels.

    The season is found by the labels up to number `before`.
    """
    state.late += LATE_RATE * ((1.0 if made < state.n_learned else 0.0) - state.late)
    rate = max(RUN_RATE, 1.0 / (state.n_learned + 1.0))
    state.change_rate += rate * ((1.0 if label != state.recent[0] else 0.0) - state.change_rate)
    append_label(state, label, before, before - made + 1)
    state.n_fresh, state.last_key = 0, key


@kernel
def learn_mixture(state, labels, n, place):
    """Learn the class at `place`, after the mixture has been computed."""
    learn_exponent(state, n, place)
    update_shares(state.mixed_shares, state.mixtures[:, place])
    learn_shares(state, labels, n, place)


@kernel
def learn_exponent(state, n, label):
    """Update exponents by a gradient step, and the log losses of vote and mixture."""
    rows, logs, lifts, corrected = state.mixtures, state.logs, state.lifts, state.mixtures[CORRECTED]
    at_mixture = 0.0
    for j in range(MIXED):
        at_mixture += state.mixed_shares[j] * rows[j, label]
    state.plain_loss -= LOSS_RATE * (log_of(max(rows[VOTE, label], LEAST_BY_VOTE)) + state.plain_loss)
    state.autocorrelated_loss -= LOSS_RATE * (log_of(max(at_mixture, LEAST_BY_VOTE)) + state.autocorrelated_loss)
    state.inverse_temperature = calibrated(state.inverse_temperature, logs, corrected, n, label)
    exponent = state.exponent + TEMPERATURE_RATE * surprise(lifts, corrected, n, label)
    state.exponent = min(max(exponent, 0.0), MOST_EXPONENT)


@inlined
def answer_rate(state):
    """Return the rate of the accuracies of answers."""
    return max(1.0 / ANSWER_WINDOW, 1.0 / (state.n_learned + ANSWER_CAUTION))
