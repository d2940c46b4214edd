"""Tasks whose output is a token of the vocabulary, and how tokens are found by text or id."""

from dataclasses import dataclass
from typing import Any

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.tasks.task import Task
from tokenlight.text.tokenized_text import is_whole


@dataclass(frozen=True)
class Worded(Task):
    """A task whose output is a token of the vocabulary."""

    with_words = True

    @property
    def outputs(self) -> int:
        return self.model.config.get_text_config().vocab_size

    def index(self, name: object) -> int:
        return token_index(name, self.tokenizer, self.outputs)

    def name_of(self, index: int) -> str:
        return self.tokenizer.decode([index])


def token_index(token: object, tokenizer: Any, vocabulary: int) -> int:
    """A token id, a text that is exactly one token (' are'), or a vocabulary entry ('Ġare', '##ing')."""
    if is_whole(token):
        if not 0 <= token < vocabulary:
            raise RefusedValue(f"token id {token} is outside the vocabulary of {vocabulary} tokens")
        return int(token)
    if not isinstance(token, str):
        raise RefusedType(f"expected a token as text or id, found {type(token).__name__}: {token!r}")
    ids = tokenizer.encode(token, add_special_tokens=False)
    if len(ids) == 1 and (ids[0] != tokenizer.unk_token_id or token == tokenizer.unk_token):
        return ids[0]
    # SentencePiece writes the blank itself, so ' are' is the text 'are' there.
    bare = tokenizer.encode(token.lstrip(" "), add_special_tokens=False)
    if len(bare) == 1 and tokenizer.convert_ids_to_tokens(bare)[0] == token.replace(" ", "▁"):
        return bare[0]
    entry = tokenizer.convert_tokens_to_ids(token)
    if isinstance(entry, int) and entry != tokenizer.unk_token_id:
        return entry
    pieces = tokenizer.convert_ids_to_tokens(ids)
    blank = tokenizer.encode(f" {token}", add_special_tokens=False)
    hint = (
        f", or {' ' + token!r} with a leading blank" if len(blank) == 1 and tokenizer.unk_token_id not in blank else ""
    )
    raise RefusedValue(f"{token!r} is not one token but {len(pieces)}: {pieces}. Name a single token{hint}")
