"""A language model writes: its words are told as they come, and it stops when nobody waits for them."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from tokenlight.explain.answering import generate
from tokenlight.foundation.progress import pass_begins
from tokenlight.serve.checks import Refused
from tokenlight.serve.events import Writing, Wrote
from tokenlight.serve.questions import WriteRequest
from tokenlight.serve.session import Session, read_prompt
from tokenlight.serve.waiting_line import Say
from tokenlight.text.answers import UNFINISHED

WRITE = "write"  # what stands where other requests name a method


@dataclass
class Telling:
    """What transformers' `generate` hands its tokens to: first those of the prompt, then each new one."""

    tokenizer: Any
    say: Say
    prompt_seen: bool = False
    ids: list[int] = field(default_factory=list)

    def put(self, value: Tensor) -> None:
        if not self.prompt_seen:
            self.prompt_seen = True
            return
        self.ids += value.flatten().tolist()
        text = self.tokenizer.decode(self.ids, skip_special_tokens=True)
        self.say(Writing(text.rstrip(UNFINISHED), len(self.ids)))
        pass_begins()  # the next one, unless nobody waits for it any more

    def end(self) -> None:
        """All is told."""


def answer_write(session: Session, asked: WriteRequest, say: Say) -> None:
    explainer = session.explainer
    if not explainer.task.reads_on:
        raise Refused(f"only language models write; this is a {explainer.task.name} model")
    tokenized_text = read_prompt(session, asked)
    tokens = asked.tokens
    if (most := explainer.task.max_length) is not None:
        tokens = min(tokens, most - len(tokenized_text) - tokenized_text.truncated)
        if tokens < 1:
            found = len(tokenized_text) + tokenized_text.truncated
            raise Refused(f"the prompt has {found} tokens, the model reads {most}: no room is left for an answer")
    drawing: dict[str, Any] = {"do_sample": False}
    if asked.temperature:
        drawing = {"do_sample": True, "temperature": asked.temperature}
    telling = Telling(explainer.tokenizer, say)
    written = generate(
        explainer, tokenized_text, asked.seed, {"max_new_tokens": tokens, "streamer": telling, **drawing}
    )
    ended = written.ids[-1] in explainer.tokenizer.all_special_ids or len(written.ids) < tokens
    say(Wrote(WRITE, written.text, list(written.ids), ended))
