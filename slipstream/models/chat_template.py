"""Chat templates: Jinja source from a stranger, run in a sandbox."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class ChatTemplateError(ValueError):
    """The messages and the model's chat template do not go together; the text says how."""


class ChatTemplate:
    """One model's template, compiled at its first use."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._compiled: jinja2.Template | None = None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        **variables: Any,
    ) -> str:
        """The conversation as one text. Raises ``ChatTemplateError``."""
        if not messages:
            raise ChatTemplateError("a chat needs at least one message")
        # Templates test whether a field is there, so a null field must not be.
        present = [{k: v for k, v in m.items() if v is not None} for m in messages]
        given = {"tools": None, "documents": None} | self._special_tokens | variables
        try:
            if self._compiled is None:
                self._compiled = _environment().from_string(self.source)
            return self._compiled.render(
                messages=present, add_generation_prompt=add_generation_prompt, **given
            )
        except Exception as error:  # a template is a program and may fail in any way
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ChatTemplateError(
                f"the model's chat template does not accept these messages: {reason}"
            ) from error


def _environment() -> ImmutableSandboxedEnvironment:
    """What templates written for Hugging Face expect to find."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[jinja2.ext.loopcontrols, _GenerationTag],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
    return environment


class _GenerationTag(jinja2.ext.Extension):
    """``{% generation %}``, which marks what a model wrote for training, and prints its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_print_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _print_body(self, caller: Callable[[], str]) -> str:
        return caller()


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON; Jinja's own filter escapes for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> str:
    raise jinja2.TemplateError(message)
