"""Facts planted in neutral text, a question about one of them, and its place: an evidence set that needs no download.

    python recipes/evidence/needle.py --output needle.jsonl
    python recipes/evidence/needle.py --model PATH/TO/smollm2 --output needle.jsonl
    tokenlight bench PATH/TO/smollm2 needle.jsonl -o results

Each line has the messages, the sentences of the text as documents, the answer, and the sentence that holds it as
evidence. The other facts are of the same kind, about somebody or something else: only the evidence answers the
question. With a model, only cases are kept whose answer it finds ten times likelier with the evidence than without.
"""

import argparse
import random
from pathlib import Path

from cases import Case, make_messages, write_cases

NEUTRAL = (
    "The morning was gray and a little cold.",
    "A dog barked somewhere behind the houses.",
    "Nobody had watered the plants for a week.",
    "The bakery on the corner opened as usual.",
    "Two children drew chalk figures on the pavement.",
    "A truck stopped for a moment and went on.",
    "The newspaper lay unread on the kitchen table.",
    "Somebody had left an umbrella on the bench.",
    "The old clock in the hall was slow again.",
    "Leaves had gathered along the garden wall.",
    "The radio played quietly in another room.",
    "A neighbor waved from the other side of the street.",
    "It smelled of fresh paint on the stairs.",
    "The windows had been cleaned the day before.",
    "Later the clouds moved off towards the east.",
    "The coffee was still too hot to drink.",
    "A bicycle leaned against the fence.",
    "The meeting had been moved to the afternoon.",
    "Most of the chairs were stacked in a corner.",
    "The cat slept through all of it.",
    "Rain was expected towards the evening.",
    "The post came earlier than it normally did.",
    "A light in the corridor had begun to flicker.",
    "The path along the river was muddy.",
    "Somebody laughed loudly in the yard.",
    "The shelves were full of old magazines.",
    "The lift was out of order once more.",
    "A thin layer of dust covered the piano.",
    "The market closed a little after noon.",
    "On the roof two pigeons were quarrelling.",
)
NAMES = ("Alice", "Robert", "Carol", "David", "Emma", "Frank", "Grace", "Henry", "Laura", "Peter")
FACTS = (  # what is planted, and what is asked; the answer says the fact again
    ("{who} lives in {what}.", "Where does {who} live?", NAMES, ("Oslo", "Lima", "Cairo", "Tokyo", "Madrid", "Dublin")),
    (
        "{who} works as a {what}.",
        "What does {who} work as?",
        NAMES,
        ("doctor", "baker", "pilot", "teacher", "farmer", "lawyer"),
    ),
    (
        "The code of the {who} locker is {what}.",
        "What is the code of the {who} locker?",
        ("red", "blue", "green", "yellow", "black", "white"),
        ("4182", "7395", "2604", "9137", "5820", "3461"),
    ),
    (
        "The {who} is kept in the {what}.",
        "Where is the {who} kept?",
        ("ladder", "violin", "passport", "telescope", "suitcase", "lantern"),
        ("cellar", "attic", "garage", "kitchen", "library", "shed"),
    ),
    (
        "{who} ordered the {what}.",
        "What did {who} order?",
        NAMES,
        ("soup", "salad", "lasagne", "omelette", "pancakes", "curry"),
    ),
)


def make_case(number: int, sentences: int, facts: int, rng: random.Random) -> Case:
    """Facts of one kind at random places in neutral text; the question is about one of them."""
    fact, question, subjects, values = FACTS[number % len(FACTS)]
    pairs = list(zip(rng.sample(subjects, facts), rng.sample(values, facts), strict=True))
    planted = [fact.format(who=who, what=what) for who, what in pairs]
    text = [*rng.sample(NEUTRAL, sentences - facts), *planted]
    rng.shuffle(text)
    return Case(
        messages=make_messages(
            "Read the text and answer the question.", " ".join(text), question.format(who=pairs[0][0])
        ),
        documents=text,
        answer=planted[0],
        evidence=[planted[0]],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="a file of JSON lines")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--sentences", type=int, default=10, help="of each text, the facts among them")
    parser.add_argument("--facts", type=int, default=3, help="planted in each text; one is asked for")
    parser.add_argument("--model", help="a language model: only cases whose evidence matters to it are kept")
    parser.add_argument("--device", help="of the model: cpu, cuda, cuda:1 ...; default: cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if not 1 <= args.facts <= 6 or not args.facts <= args.sentences <= args.facts + len(NEUTRAL):
        parser.error(f"1 to 6 facts in up to {len(NEUTRAL)} more sentences; found {args.facts} in {args.sentences}")
    rng = random.Random(args.seed)
    made = (make_case(number, args.sentences, args.facts, rng) for number in range(args.cases))
    write_cases(args.output, made, args.model, args.device)
