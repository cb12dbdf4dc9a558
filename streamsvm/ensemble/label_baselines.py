"""Baselines: predictions of a label from the previous labels, and their mixture.

Every learner has to beat the trivial baselines: the last label, the majority of recent labels, and the label one season
ago. Five predictors cover them with probabilities.

- CONTEXTS: decayed frequencies of classes given the previous labels. Let N_k(c | l_1 .. l_k) be the decayed count of
  class c after the labels l_k .. l_1, with l_1 the last one. Frequencies back off to shorter contexts,

      M_0(c) = (N_0(c) + 1/n) / (sum N_0 + 1),    M_k(c) = (N_k(c) + M_{k-1}(c)) / (sum N_k + 1).

- LAST_CONTEXT: M_1 alone. It is better if most labels are missing, because M_3 trusts even a single count.
- LAST: the last label, with the share of recent labels that equal their predecessor as its probability. Other classes
  are in proportion to M_0.
- LAST_EVENLY: like LAST, with equal probabilities of the other classes.
- SEASON: like LAST, with the label `season` labels ago instead of the last label.

Their mixture has posterior weights under a small probability of a switch (fixed share). Its log loss is therefore close
to the log loss of the best predictor, also after a change of the best one.

A season is the lag at which recent labels agree most often. It counts as found if it agrees more often than the last
label and the most frequent class, by SEASON_MARGIN. If labels are late and persist, no lag may agree more often than
lag 1. Then the lag of the last known label replaces lag 1, and the season is a longer lag.

Notes
-----
Temporal dependence as a baseline and as information: A. Bifet et al., "Pitfalls in benchmarking data stream
classification and how to avoid them", ECML PKDD 2013. Fixed share: M. Herbster and M. Warmuth, "Tracking the best
expert", Machine Learning 32, 1998. The interpolated estimate is common in text compression.
"""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, kernel, uint
from streamsvm.core.losses import LEAST_BY_VOTE, best_class, slice_sum
from streamsvm.core.schema import Array, Number, SchemaEntry, i64
from streamsvm.ensemble.notes import LAGS, NOTES
from streamsvm.features.scaler import MOST_EVENTS

# Number of rows of counts that the contexts of each length share.
CONTEXT_ROWS = 256
N_ROWS = 1 + LAGS * CONTEXT_ROWS
DECAY = 0.999
# Counts are rescaled when their increment has grown to this value.
LARGE = 1e100
# With more than FEW classes, the vote names a class with at least this share of the counts of a context.
LIKELY = 1.0 / 16.0
# The predictors.
CONTEXTS, LAST, LAST_EVENLY, SEASON, LAST_CONTEXT = range(5)
PREDICTORS = 5
# Answers, which are compared by their accuracies.
BY_MIXTURE, BY_VOTE, BY_CORRECTED, BY_EXPECTED, BY_LAST, BY_SEASON, BY_FREQUENCY = range(7)
ANSWERS = 7
# Probability per label that another predictor becomes the best one, and decay of the counts of repeated labels.
SWITCH_RATE, REPEAT_DECAY = 3e-4, 0.9995
# The class of a better answer gets a probability that is larger by this share.
AHEAD = 1e-4
# Longest season; one label in SEASON_SAMPLE updates the agreement of all lags, over about SEASON_WINDOW updates. The
# golden ratio spreads these labels, so that all phases of a season are sampled.
MOST_SEASON, SEASON_SAMPLE, SEASON_WINDOW, SEASON_CAUTION = 750, 8, 300.0, 30.0
SEASON_MARGIN, RUNS_MARGIN = 0.05, 1.5  # the second is three standard deviations of the agreement of a run
_SHARE = (0.0, 1.0)
# Bounds of weights that follow fixed share, which keeps all of them positive.
POSITIVE_SHARE = (0.01 * SWITCH_RATE, 1.0)
_COUNT = (0.0, MOST_EVENTS)
FIELDS: dict[str, SchemaEntry] = {
    "increment": Number("increment of a count", start=1.0, saved=True, bounds=(1.0, LARGE)),
    "n_learned": Number("number of labels learned", i64, saved=True, bounds=_COUNT),
    "recent": Array(
        (LAGS,),
        "labels learned last, the latest first, -1 if there are none",
        i64,
        start=-1,
        saved=True,
        bounds=(-1.0, MOST_EVENTS),
    ),
    "counts": Array(
        ("contexts", "classes"),
        "decayed label counts of all contexts: N_0, then N_1, ...",
        saved=True,
        bounds=(0.0, math.inf),
    ),
    "history": Array(("notes",), "labels learned, a ring buffer", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
    "agreement": Array(("notes",), "decayed share of labels that equal the one a lag ago", saved=True, bounds=_SHARE),
    "season": Number("lag of the season, 0 if none is found", i64, saved=True, bounds=(0.0, MOST_SEASON)),
    "ago": Number("label one season before the current event, -1 if there is none", i64, start=-1),
    "repeated": Array((PREDICTORS,), "decayed count of labels that LAST or SEASON named", saved=True, bounds=_COUNT),
    "changed": Array((PREDICTORS,), "decayed count of other labels", saved=True, bounds=_COUNT),
    "shares": Array(
        (PREDICTORS,), "posterior weights of the predictors", start=1.0 / PREDICTORS, saved=True, bounds=POSITIVE_SHARE
    ),
    "predicted": Array((PREDICTORS, "classes"), "probabilities of the predictors"),
    "base": Array(("classes",), "class frequencies M_0"),
    "expected": Array(("classes",), "probabilities of the mixture"),
    "tally": Array(("classes",), "one row of counts, for the classes voted on"),
    "n_classes": Number("number of classes, if some are voted on by name", i64),
    "n_named": Number("number of named classes, 0 if the vote covers all classes in order", i64),
    "named": Array(("classes",), "the named classes", i64),
}


# Prediction -------------------------------------------------------------------------------------------------------


@kernel
def predict_label(state, labels, n):
    """Predict the label of an event among the n classes voted on.

    Writes the mixture to `expected` and the class frequencies to `base`.

    Parameters
    ----------
    labels
        The previous labels, the last one first. The label one season ago is `ago`.
    """
    base, rows, shares, expected = state.base, state.predicted, state.shares, state.expected
    evenly, contexts = rows[LAST_EVENLY], rows[CONTEXTS]
    spread_evenly(state, n, evenly)
    find_frequencies(state, n)
    for c in range(n):
        contexts[c] = base[c]
    for k in range(1, LAGS + 1):
        back_off(state, context(labels, k), n, contexts)
        for c in range(n if k == 1 else 0):
            rows[LAST_CONTEXT, c] = contexts[c]
    last = place_in(state, labels[0], n)
    repeat(state, LAST, last, base, n)
    repeat(state, LAST_EVENLY, last, evenly, n)
    repeat(state, SEASON, place_in(state, state.ago, n), base, n)
    for c in range(n):
        total = 0.0
        for j in range(PREDICTORS):
            total += shares[j] * rows[j, c]
        expected[c] = max(total, LEAST_BY_VOTE)


@inlined
def spread_evenly(state, n, out):
    """Write equal probabilities of all classes to `out`."""
    others = n_others(state, n)
    for c in range(n):
        out[c] = 1.0 / (n - 1 + others)
    out[n - 1] *= others


@inlined
def find_frequencies(state, n):
    """Write the class frequencies M_0 to `base`."""
    spread_evenly(state, n, state.base)
    back_off(state, 0, n, state.base)


@inlined
def back_off(state, row, n, frequencies):
    """Interpolate the frequencies with one row of `counts`."""
    interpolate(state, state.counts[row], state.increment, n, frequencies)


@inlined
def interpolate(state, counts, one, n, frequencies):
    """Interpolate frequencies with counts of all classes; `one` is a single count."""
    tally, share = state.tally, 1.0 / take_counts(state, counts, one, n)
    for c in range(n):
        frequencies[c] = (tally[c] + one * frequencies[c]) * share


@inlined
def repeat(state, j, place, frequencies, n):
    """Predict with predictor j that the class at `place` repeats.

    Its probability is the recent share of repetitions. The other classes are in proportion to `frequencies`, and so are
    all classes if `place` is negative.
    """
    out, stays, moves = state.predicted[j], 1.0, 1.0
    repeats = place >= 0 and frequencies[place] < 1.0
    if repeats:
        stays = (state.repeated[j] + 1.0) / (state.repeated[j] + state.changed[j] + 2.0)
        moves = (1.0 - stays) / (1.0 - frequencies[place])
    for c in range(n):
        out[c] = moves * frequencies[c]
    if repeats:
        out[place] = stays


@inlined
def context(labels, k):
    """Return the row of `counts` for the first k of these labels."""
    mixed = 0
    for i in range(k):
        mixed = (mixed * 1000003 + labels[i] + 1) % CONTEXT_ROWS
    return 1 + (k - 1) * CONTEXT_ROWS + mixed


@inlined
def take_counts(state, counts, one, n):
    """Write the counts of the n classes voted on to `tally`; a label counts as `one`.

    Returns
    -------
    float
        The sum of the counts plus one count.
    """
    tally, total, n_named = state.tally, one, state.n_named
    if n_named == 0:
        for c in range(n):
            tally[c] = counts[c]
            total += tally[c]
        return total
    others = slice_sum(counts, 0, n - 1 + n_others(state, n))
    total += others
    for i in range(n_named):
        tally[i] = counts[state.named[i]]
        others -= tally[i]
    if n_named < n:
        tally[n_named] = max(others, 0.0)
    return total


@inlined
def n_others(state, n):
    """Return how many classes the last of the n classes voted on represents.

    It is 1 unless some classes are voted on by name.
    """
    return state.n_classes - n + 1 if state.n_named > 0 else 1


@inlined
def n_answers(state, n):
    """Return how many of the n classes voted on can be answers."""
    return state.n_named if state.n_named > 0 else n


@inlined
def place_in(state, label, n):
    """Return the position of a class among the n classes voted on, or -1."""
    if state.n_named == 0:
        return label if label < n else -1
    for i in range(state.n_named):
        if state.named[i] == label:
            return i
    return -1


@inlined
def season_label(state, made, waiting):
    """Return the last known label of the same phase of the season, or -1.

    Parameters
    ----------
    made
        Number of labels known at the prediction of the event.
    waiting
        Number of events before it without a label at that time.
    """
    season = max(state.season, 1)
    at = made - season + waiting % season
    return state.history[at % NOTES] if state.season > 0 and at >= max(0, state.n_learned - NOTES) else -1


@inlined
def next_season_label(state, made):
    """Return the last of the first `made` labels in the next label's phase.

    If the history has none, return the oldest label of this phase; -1 if there is no season.
    """
    season, n = max(state.season, 1), state.n_learned
    lag = min((n - made + season) // season * season, min(n, NOTES) // season * season)
    return state.history[(n - lag) % NOTES] if state.season > 0 and lag > 0 else -1


@inlined
def likely_at(state, row, n):
    """Return the count from which on a class is likely in a row of counts."""
    total = slice_sum(state.counts[row], 0, n)
    return LIKELY * total if total > 0.0 else math.inf


@inlined
def share_of(state, row, label, n):
    """Return the frequency of a label in a row of counts, smoothed by one count."""
    return state.counts[row, label] / (slice_sum(state.counts[row], 0, n) + state.increment)


# Learning ---------------------------------------------------------------------------------------------------------


@kernel
def learn_shares(state, labels, n, place):
    """Update the mixture with the class at `place`, directly after `predict_label`."""
    rows, shares = state.predicted, state.shares
    update_shares(shares, rows[:, place])
    last, ago = place_in(state, labels[0], n), place_in(state, state.ago, n)
    if last >= 0:
        count_repeat(state, LAST, last == place)
        count_repeat(state, LAST_EVENLY, last == place)
    if ago >= 0:
        count_repeat(state, SEASON, ago == place)


@inlined
def update_shares(shares, likelihoods):
    """Update posterior weights of predictors by fixed share.

    `likelihoods` are the probabilities that they gave to the label.
    """
    total = 0.0
    for j in range(shares.size):
        shares[j] *= max(likelihoods[j], LEAST_BY_VOTE)
        total += shares[j]
    for j in range(shares.size):
        shares[j] = (1.0 - SWITCH_RATE) * shares[j] / total + SWITCH_RATE / shares.size


@inlined
def most_accurate(accuracies, answers, n, usual, margin):
    """Return the most accurate of the first n answers that are not -1.

    It is the usual one, unless another is more accurate by more than `margin`.
    """
    best, least = usual, accuracies[usual] + margin
    for i in range(n):
        if answers[i] >= 0 and accuracies[i] > least:
            best, least = i, accuracies[i]
    return best


@inlined
def learn_accuracies(accuracies, answers, label, rate):
    """Update the decayed accuracies of predicted classes; -1 counts as wrong."""
    for i in range(answers.size):
        accuracies[i] += rate * ((1.0 if answers[i] == label else 0.0) - accuracies[i])


@inlined
def put_ahead(proba, first, second):
    """Make class `first` slightly more probable than class `second`.

    Their sum does not change.
    """
    if first != second:
        middle = 0.5 * (proba[first] + proba[second])
        proba[first], proba[second] = (1.0 + AHEAD) * middle, (1.0 - AHEAD) * middle


@inlined
def count_repeat(state, j, is_repeated):
    """Count whether the class that predictor j named was right."""
    state.repeated[j] *= REPEAT_DECAY
    state.changed[j] *= REPEAT_DECAY
    if is_repeated:
        state.repeated[j] += 1.0
    else:
        state.changed[j] += 1.0


@kernel
def count_label(state, labels, label, lags):
    """Count a label in up to `lags` + 1 contexts.

    The increment grows with each label, which decays the earlier counts.
    """
    counts = state.counts
    counts[0, label] += state.increment
    for k in range(1, lags + 1):
        counts[context(labels, k), label] += state.increment
    state.increment /= DECAY
    if state.increment > LARGE:
        for i in range(counts.shape[0]):
            for c in range(counts.shape[1]):
                counts[i, c] /= state.increment
        state.increment = 1.0


@kernel
def append_label(state, label, made, last):
    """Make a label the last one known.

    The other arguments are as for `find_season`.
    """
    if (uint(state.n_learned) * uint(0x9E3779B97F4A7C15)) >> uint(61) == 0:
        find_season(state, label, made, last)
    state.history[state.n_learned % NOTES] = label
    for k in range(LAGS - 1, 0, -1):
        state.recent[k] = state.recent[k - 1]
    state.recent[0] = label
    state.n_learned += 1


@kernel
def find_season(state, label, made, last):
    """Update the agreement at each lag with a label, and the season.

    Lags count back from the first `made` labels. The last label known at the prediction is at the lag `last`.
    """
    agreement, at = state.agreement, made % NOTES
    most = min(MOST_SEASON, made, NOTES - (state.n_learned - made))
    rate = max(1.0 / (state.n_learned // SEASON_SAMPLE + SEASON_CAUTION), 1.0 / SEASON_WINDOW)
    compare(state.history, agreement, (label, rate), 1, min(most, at), at)
    compare(state.history, agreement, (label, rate), at + 1, most, at + NOTES)
    state.season = season_beyond(state, 1, most, SEASON_MARGIN)
    if state.season == 0 and 1 < last <= most:
        # The labels of a run are equal, so agreements vary as if each run were a single label.
        n_runs = max(1.0, state.change_rate * min(state.n_learned, SEASON_SAMPLE * SEASON_WINDOW))
        state.season = season_beyond(state, last, most, SEASON_MARGIN + RUNS_MARGIN / math.sqrt(n_runs))


@inlined
def season_beyond(state, last, most, margin):
    """Return the lag above `last` that agrees most, 0 if not by the margin."""
    agreement, n, best = state.agreement, state.counts.shape[1], 0
    for lag in range(last + 1, most + 1):
        if agreement[uint(lag)] > agreement[uint(best)]:
            best = lag
    frequent = share_of(state, 0, best_class(state.counts[0], 0, n), n)
    return best if best > 0 and agreement[best] > max(agreement[last], frequent) + margin else 0


@inlined
def compare(history, agreement, update, first, last, at):
    """Update the agreement at lags `first` to `last`, counted from index `at`."""
    label, rate = update
    for lag in range(first, last + 1):
        right = 1.0 if history[uint(at - lag)] == label else 0.0
        agreement[uint(lag)] += rate * (right - agreement[uint(lag)])
