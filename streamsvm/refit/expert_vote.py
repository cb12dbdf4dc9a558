"""A panel: a learner, and models beside it that were fitted to windows of the stream, vote on each event.

Two votes are taken. In the first, expert k weighs exp(VOTE_SHARPNESS * lead_k), where the lead is how much more often
than the learner it was right of late; it begins behind, so that a model must show what it is worth. This loses next to
nothing where models are worse, but is slow to turn. The second is the fixed share: weights are multiplied with the
probability an expert gave to the label, and a small share of all is dealt out anew at each event. It turns within a few
events, as where a concept comes back that an older model knows, and is heard while it is right more often than the
first. Where models are hardly worse than the learner, chance makes now one, now another of them look better, and
several that are alike outvote it: so it answers alone where votes have been right less often, over longer. The learner
is expert 0, and what it says is taken as it is.

An expert that has next to no say, or less than AWAKE_MOST others, falls asleep: it answers for one event in
ASLEEP_SAMPLE, each at its turn, so that no event has to wait for all of them. It wakes when it has come nearer, and all
do when the panel is wrong more often than it was. Who is asleep changes only where the number of events learned is a
multiple of BLOCK.

Notes
-----
M. Herbster and M. K. Warmuth, "Tracking the best expert", Machine Learning 32, 1998.
"""

from __future__ import annotations

import math

from streamsvm.core.access import StateType, address_of
from streamsvm.core.entry_points import Entry
from streamsvm.core.jit import brief, call, inlined, kernel, view
from streamsvm.core.losses import best_class, scale_terms
from streamsvm.core.signatures import INTEGER, NUMBERS
from streamsvm.core.state import Array, Declaration, Number, Part, i64, records
from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.online.calibration import calibrated, inverse_temperature
from streamsvm.refit.frozen_models import QUESTION

BLOCK = 64
VOTE_SHARPNESS = 100.0
# An expert begins as if it had been right less often by so much, over so many events.
CAUTION, CAUTION_EVENTS = 0.05, 30.0
# What the fixed share deals out anew, the least probability it takes an answer for, and what an expert begins with.
SHARE, LEAST_PROBABILITY, FIRST_SHARE = 0.01, 0.01, math.exp(-6.0)
# The second vote is heard where it is right more often by the margin, of some 1 / rate events.
RATE, MARGIN = 0.002, 0.002
# Votes are heard until they have been right less often than the learner, of some 1 / rate events by more than two; then
# again once they have been right as often.
GAIN_RATE = 1.0 / 4096.0
LEAST_GAIN = -2.0 * GAIN_RATE
# Whoever has less than this of both votes, or than so many others, falls asleep, but not among its first events, nor
# soon after a change.
LEAST_SAY, AWAKE_MOST, AWAKE_LEAST, AWAKE_AGAIN, ASLEEP_SAMPLE = 1e-3, 3, 512.0, 128.0, 8
# There is a change where the panel was right of late less often than longer, by so many standard deviations.
NOW_RATE, LONG_RATE, CHANGE = 1.0 / 64.0, 1.0 / 1024.0, 3.5
# Of the last so many stretches of so many events it is known how often each was right.
STRETCHES, STRETCH = 64, 256

_SHARE = (0.0, 1.0)

PANEL = Declaration(
    "panel",
    {
        "seen": Number("labelled events", saved=True, within=(0.0, MOST_EVENTS)),
        "n_classes": Number("classes known", i64, saved=True, within=(0.0, MOST_EVENTS)),
        "window": Number("leads are of about so many events", start=500.0),
        "n_places": Number("whoever is present sits in one of the first so many places", i64),
        "first_right": Number("how often the first vote was right, of late", saved=True, within=_SHARE),
        "second_right": Number("how often the second was", saved=True, within=_SHARE),
        "gain": Number("how much more often than the learner the votes were right", saved=True, within=(-1.0, 1.0)),
        "is_mute": Number("whether the learner answers alone", i64, saved=True, within=_SHARE),
        "right_now": Number("the share of right predictions of late", saved=True, within=_SHARE),
        "right_long": Number("the same over longer", saved=True, within=_SHARE),
        "learner_right": Number("the learner's decayed share of right predictions", saved=True, within=_SHARE),
        "experts": records(
            ("experts",),
            "the learner, and who sits in the other places",
            present=Number("whether there is one", i64, saved=True, within=_SHARE),
            asleep=Number("whether it is asleep", i64, saved=True, within=_SHARE),
            awake_until=Number("it stays awake at least so many events", saved=True, within=(0.0, 2.0 * MOST_EVENTS)),
            heard=Number("labelled events it has answered for", saved=True, within=(0.0, MOST_EVENTS)),
            lead=Number("how much more often than the learner it was right", saved=True, within=(-1.0, 1.0)),
            share=Number("its share of the second vote", saved=True, within=_SHARE),
            inverse_temperature=inverse_temperature("the exponent of its probabilities"),
            hits=Number("how often it was right in this stretch", i64, saved=True, within=(0.0, STRETCH)),
            asked=Number("how often it was asked", i64, saved=True, within=(0.0, STRETCH)),
            missed=Number("how much more often it was right than all others, where it was, when that was last counted"),
            say=Number("the larger of its weights in the votes, when it was last seen to"),
        ),
        "record": Array(
            ("experts", "stretches"), "how often each was right in the last stretches", saved=True, within=_SHARE
        ),
        "logs": Array(("experts", "classes"), "the logarithms of what they say of the event in hand"),
        "said": Array(("experts", "classes"), "what they say of it, at their inverse temperatures"),
        "first": Array(("classes",), "the first vote"),
        "second": Array(("classes",), "the second"),
    },
)

BALLOT = Declaration(
    "ballot",
    {
        "labels": Array(("asked",), "a class for each row, -1 where it is not known", i64, lent=True),
        "answers": Array(
            ("experts", "asked", "classes"), "what each expert says; NaN where it was not asked", lent=True
        ),
        "codes": Array(("asked",), "the best class for each row, -1 where there is none", i64, lent=True),
        "scores": Array(("asked",), "its probability", lent=True),
        "proba": Array(("asked", "classes"), "the probabilities of all", lent=True),
        "errors": Array(("asked",), "whether the best class is not that of the label", lent=True),
    },
)

POLL = Declaration(
    "poll",
    {
        "ballot": Part(BALLOT, "of the rows"),
        "question": Part(QUESTION, "the rows, and what the expert says who was asked last"),
        "seats": Array(
            ("experts",),
            "who sits in each place of the panel, the learner in the first",
            fields={
                "run": Number("the address of what has it answer; 0 where compiled code cannot ask", i64),
                "model": Number("the address of its model", i64),
            },
            lent=True,
        ),
    },
)

SEAT = dict(POLL.of(Array))["seats"].element


@inlined
def is_asked(panel, k, label):
    """Whether expert k is to answer for the next row: who is asleep does at its turn, where the row is learned."""
    expert = panel.experts[k]
    if expert.asleep > 0 and (label < 0 or (int(panel.seen) + k) % ASLEEP_SAMPLE != 0):
        return False
    return expert.present > 0


@inlined
def speaks(panel, ballot, k, i):
    """Whether expert k is to answer for row i, and has."""
    return is_asked(panel, k, ballot.labels[i]) and not math.isnan(ballot.answers[k, i, 0])


@inlined
def is_lacking(panel, ballot, i):
    """Whether somebody is to answer for row i, and has not."""
    for k in range(1, panel.n_places):
        if is_asked(panel, k, ballot.labels[i]) and math.isnan(ballot.answers[k, i, 0]):
            return True
    return False


@inlined
def hear(panel, ballot, k, i, n):
    """Take what expert k says of row i, at its inverse temperature."""
    answers, logs, said, beta = ballot.answers, panel.logs, panel.said, panel.experts[k].inverse_temperature
    if k == 0:  # the learner is calibrated by itself
        for c in range(n):
            said[k, c] = answers[k, i, c]
        return
    total = 0.0
    for c in range(n):
        logs[k, c] = math.log(max(answers[k, i, c], 1e-6))
        said[k, c] = math.exp(beta * logs[k, c])
        total += said[k, c]
    less = math.log(total)
    for c in range(n):
        said[k, c] /= total
        logs[k, c] = beta * logs[k, c] - less


@kernel
def take_votes(panel, ballot, i, n):
    """Both votes on row i, for n classes: at hand in `first` and `second`."""
    experts, first, second, said = panel.experts, panel.first, panel.second, panel.said
    top, total, shares, n_heard = 0.0, 0.0, 0.0, 0
    for c in range(n):
        first[c] = second[c] = 0.0
    for k in range(panel.n_places):
        if speaks(panel, ballot, k, i) and experts[k].asleep == 0:
            top = max(top, experts[k].lead)
            n_heard += 1
    for k in range(panel.n_places):
        if not speaks(panel, ballot, k, i):
            continue
        hear(panel, ballot, k, i, n)
        if experts[k].asleep == 0:
            weight, share = math.exp(VOTE_SHARPNESS * (experts[k].lead - top)), experts[k].share
            total += weight
            shares += share
            for c in range(n):
                first[c] += weight * said[k, c]
                second[c] += share * said[k, c]
    scale_terms(first, 0, n, 1.0 / total)
    scale_terms(second, 0, n, 1.0 / max(shares, 1e-300))
    if n_heard == 1:  # the learner alone, to the last bit
        for c in range(n):
            first[c] = second[c] = said[0, c]


@view
def heard_vote(panel):
    """The vote that was right more often, of late."""
    return panel.second if panel.second_right > panel.first_right + MARGIN else panel.first


@inlined
def count_gain(panel, n, label):
    """Take whether the vote that is heard was right, and whether the learner was."""
    gain = is_right(heard_vote(panel), n, label) - is_right(panel.said[0], n, label)
    panel.gain += GAIN_RATE * (gain - panel.gain)
    if panel.gain < LEAST_GAIN or panel.gain >= 0.0:
        panel.is_mute = 1 if panel.gain < 0.0 else 0


@kernel
def count_votes(panel, ballot, i, n, label):
    """Take how well row i was predicted into leads, shares and inverse temperatures."""
    experts, said = panel.experts, panel.said
    panel.first_right += RATE * (is_right(panel.first, n, label) - panel.first_right)
    panel.second_right += RATE * (is_right(panel.second, n, label) - panel.second_right)
    learner_right, mixed, n_present = is_right(said[0], n, label), 0.0, 0
    panel.learner_right += max(1.0 / panel.window, 1.0 / (panel.seen + 1.0)) * (learner_right - panel.learner_right)
    at_label = max(panel.second[label], LEAST_PROBABILITY) if label < n else LEAST_PROBABILITY
    for k in range(panel.n_places):
        if experts[k].present == 0:
            continue
        n_present += 1
        if speaks(panel, ballot, k, i):
            experts[k].asked += 1
            experts[k].hits += int(is_right(said[k], n, label))
            if k > 0:
                count_expert(panel, k, n, label, learner_right)
            share = max(said[k, label], LEAST_PROBABILITY) if label < n else LEAST_PROBABILITY
        else:
            share = at_label  # who is not asked neither gains nor loses
        experts[k].share *= share
        mixed += experts[k].share
    for k in range(panel.n_places):
        if experts[k].present > 0:
            experts[k].share = (1.0 - SHARE) * experts[k].share / mixed + SHARE / n_present


@inlined
def is_right(proba, n, label):
    """1 where the label is the most probable of n classes, else 0."""
    return 1.0 if best_class(proba, 0, n) == label else 0.0


@inlined
def count_expert(panel, k, n, label, learner_right):
    """Take what expert k said into its lead and its inverse temperature."""
    expert, said, logs = panel.experts[k], panel.said[k], panel.logs[k]
    expert.heard += 1.0
    rate = max(1.0 / panel.window, 1.0 / (expert.heard + CAUTION_EVENTS))
    if expert.asleep > 0:
        rate = min(3.0 * rate, 1.0)
    expert.lead += rate * (is_right(said, n, label) - learner_right - expert.lead)
    if label < n:
        expert.inverse_temperature = calibrated(expert.inverse_temperature, logs, said, n, label)


@kernel
def look_after(panel, right):
    """Take whether the panel was right; after a block of events let experts fall asleep or wake."""
    panel.seen += 1.0
    panel.right_now += max(NOW_RATE, 1.0 / panel.seen) * (right - panel.right_now)
    panel.right_long += max(LONG_RATE, 1.0 / panel.seen) * (right - panel.right_long)
    if int(panel.seen) % STRETCH == 0:
        keep_record(panel)
    if int(panel.seen) % BLOCK != 0:
        return
    spread_of = panel.right_long * (1.0 - panel.right_long) * NOW_RATE / (2.0 - NOW_RATE)
    is_changed = panel.right_now < panel.right_long - CHANGE * math.sqrt(spread_of)
    experts, top = panel.experts, 0.0
    for k in range(experts.size):
        if experts[k].present > 0:
            top = max(top, experts[k].lead)
    for k in range(1, experts.size):
        expert = experts[k]
        expert.say = -1.0
        if expert.present > 0:
            expert.say = max(math.exp(VOTE_SHARPNESS * (expert.lead - top)), expert.share - SHARE)
    for k in range(1, experts.size):
        expert = experts[k]
        if is_changed and expert.asleep > 0:
            expert.asleep = 0
            expert.awake_until = panel.seen + AWAKE_AGAIN
        if expert.say >= LEAST_SAY and n_before(experts, k) < AWAKE_MOST:
            expert.asleep = 0
        elif expert.present > 0 and panel.seen >= expert.awake_until:
            expert.asleep = 1


@inlined
def n_before(experts, k):
    """How many experts have more say than expert k; of several with the same, the one in the first place has more."""
    n = 0
    for other in range(1, experts.size):
        n += experts[other].say > experts[k].say or (experts[other].say == experts[k].say and other < k)
    return n


@inlined
def keep_record(panel):
    """Keep how often each was right in the stretch that ends."""
    at = int(panel.seen) // STRETCH % STRETCHES
    for k in range(panel.experts.size):
        expert = panel.experts[k]
        panel.record[k, at] = expert.hits / max(expert.asked, 1)
        expert.hits = expert.asked = 0


@kernel
def vote_on_rows(panel, ballot, first):
    """Vote on rows one after another, and learn from those with a label who is worth how much.

    Returns how many are done: all, or those before one about which somebody is to be asked who was not.
    """
    proba = ballot.proba
    for k in range(panel.experts.size):
        if panel.experts[k].present > 0:
            panel.n_places = k + 1
    for i in range(first, ballot.codes.size):
        if i > first and is_lacking(panel, ballot, i):
            return i
        label, n, best = ballot.labels[i], panel.n_classes, -1
        if n > 0:
            take_votes(panel, ballot, i, n)
            chosen = heard_vote(panel) if panel.is_mute == 0 else panel.said[0]
            for c in range(n):
                proba[i, c] = chosen[c]
            best = best_class(chosen, 0, n)
            ballot.scores[i] = chosen[best]
            if label >= 0:
                count_gain(panel, n, label)
                count_votes(panel, ballot, i, n, label)
        ballot.codes[i] = best
        ballot.errors[i] = 0.0 if best == label else 1.0
        if label >= 0:
            panel.n_classes = max(n, label + 1)
            look_after(panel, 1.0 - ballot.errors[i])
    return ballot.codes.size


@inlined
def answer_asked(poll, k, first, end):
    """Have expert k answer for those of the rows first ... end - 1 that are asked about, and no others."""
    answers, asked, said, seat = poll.ballot.answers, poll.question.asked, poll.question.proba, poll.seats[k]
    for i in range(first, end):
        for c in range(said.shape[1]):
            said[i, c] = 0.0
    call(seat.run, (seat.model, address_of(poll.question)))
    for i in range(first, end):
        for c in range(said.shape[1] if asked[i] != 0 else 0):
            answers[k, i, c] = said[i, c]
        asked[i] = 0


@kernel
def ask_early(panel, poll):
    """Have compiled models answer for all rows that they are to, by who is asleep before any has been voted on."""
    labels, asked = poll.ballot.labels, poll.question.asked
    for k in range(1, poll.seats.size):
        if poll.seats[k].run == 0:
            continue
        turn = int(panel.seen) + k
        for i in range(labels.size):
            asked[i] = 1 if panel.experts[k].asleep == 0 or (labels[i] >= 0 and turn % ASLEEP_SAMPLE == 0) else 0
            turn += 1 if labels[i] >= 0 else 0
        answer_asked(poll, k, 0, labels.size)


@inlined
def ask_seat(poll, k, first, end):
    """Have expert k answer for those of the rows first ... end - 1 for which it has not."""
    for i in range(first, end):
        poll.question.asked[i] = 1 if math.isnan(poll.ballot.answers[k, i, 0]) else 0
    answer_asked(poll, k, first, end)


@inlined
def ask_ahead(panel, poll, i):
    """Have all answer who are to for row i, and have not; who is awake also for those until that may change.

    Returns whether somebody is left whom compiled code cannot ask.
    """
    ballot, is_left = poll.ballot, False
    end = min(i + BLOCK - int(panel.seen) % BLOCK, ballot.codes.size)
    for k in range(1, poll.seats.size):
        if is_asked(panel, k, ballot.labels[i]) and math.isnan(ballot.answers[k, i, 0]):
            if poll.seats[k].run == 0:
                is_left = True
            else:
                ask_seat(poll, k, i, i + 1 if panel.experts[k].asleep > 0 else end)
    return is_left


@kernel
def poll_rows(panel, poll, first):
    """Vote on rows one after another, as `vote_on_rows` does, and have compiled models answer where they have not.

    Returns how many are done: all, or those before one about which somebody else is to be asked.
    """
    while first < poll.ballot.codes.size:
        if ask_ahead(panel, poll, first):
            return first
        first = vote_on_rows(panel, poll.ballot, first)
    return first


@inlined
def note_row(poll, row, learner, label):
    """Have a single row to be voted on, and what the learner says of it.

    Where it is another than before, nobody else has answered for it; where it is not, they say the same again.
    """
    values, answers, is_same = poll.question.values, poll.ballot.answers, True
    for j in range(row.size):
        is_same = is_same and (values[j] == row[j] or (math.isnan(values[j]) and math.isnan(row[j])))
        values[j] = row[j]
    for k in range(1, 1 if is_same else answers.shape[0]):
        answers[k, 0, 0] = math.nan
    for c in range(learner.size):
        answers[0, 0, c] = learner[c]
    poll.ballot.labels[0] = label


@brief
def poll_row(panel, poll, row, learner, label):
    """Vote on a single row, of which the learner says this; returns the class, -1 where there is none."""
    note_row(poll, row, learner, label)
    poll_rows(panel, poll, 0)
    return poll.ballot.codes[0]


@brief
def look_around(panel):
    """Whether nobody but the learner is heard, and for how many labelled events that stays so."""
    alone = True
    for k in range(1, panel.experts.size):
        alone = alone and (panel.experts[k].present == 0 or panel.experts[k].asleep > 0)
    return alone, BLOCK - int(panel.seen) % BLOCK


@brief
def take_place(panel, n_classes):
    """Begin anew in a place that is free, or whose expert is the least missed, where so many classes are known.

    Returns which it is.
    """
    k = 1
    while k < panel.experts.size and panel.experts[k].present > 0:
        k += 1
    if k == panel.experts.size:
        k = least_missed(panel)
    expert = panel.experts[k]
    expert.present, expert.asleep, expert.heard, expert.hits, expert.asked = 1, 0, 0.0, 0, 0
    expert.lead, expert.share, expert.inverse_temperature = -CAUTION, FIRST_SHARE, 1.0
    expert.awake_until = panel.seen + AWAKE_LEAST
    for at in range(STRETCHES):
        panel.record[k, at] = 0.0
    panel.n_classes = n_classes
    return k


@inlined
def least_missed(panel):
    """The expert without whom the best of all, stretch by stretch, would fall the least."""
    experts, record = panel.experts, panel.record
    for k in range(experts.size):
        experts[k].missed = 0.0
    for at in range(STRETCHES):
        best, second = 0, -1.0
        for k in range(1, experts.size):
            if record[k, at] > record[best, at]:
                best, second = k, record[best, at]
            else:
                second = max(second, record[k, at])
        experts[best].missed += record[best, at] - second
    found = 1
    for k in range(2, experts.size):
        more, less = experts[k], experts[found]
        if more.missed < less.missed or (more.missed == less.missed and more.lead < less.lead):
            found = k
    return found


ENTRIES = {
    "look_around": Entry(look_around, (StateType(PANEL.name),)),
    "take_place": Entry(take_place, (StateType(PANEL.name), INTEGER)),
    "poll_row": Entry(poll_row, (StateType(PANEL.name), StateType(POLL.name), NUMBERS, NUMBERS, INTEGER)),
    "ask_early": Entry(ask_early, (StateType(PANEL.name), StateType(POLL.name))),
    "poll_rows": Entry(poll_rows, (StateType(PANEL.name), StateType(POLL.name), INTEGER)),
}
