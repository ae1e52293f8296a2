"""Templates render as transformers renders them, and fail with one clear error."""

from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from slipstream.models.chat_template import ChatTemplate, ChatTemplateError
from slipstream.models.tokenizer import load_tokenizer
from tests.models.tiny import make_tiny

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": 'Say <b>"hi"</b> & é'},
    {"role": "assistant", "content": "hi", "tool_calls": None},
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

_EACH = "{% for m in messages %}"

TEMPLATES = {
    "trimmed blocks": _EACH
    + "\n    {% if m.role %}\n{{ m.role }}: {{ m.content }}\n    {% endif %}\n{% endfor %}\n",
    "special tokens": "{{ bos_token }}{{ messages[0].content | trim }}{{ eos_token }}{{ absent }}",
    "json": "{{ messages | tojson }} {{ messages[1] | tojson(indent=2) }}",
    "loop controls": _EACH
    + "{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "null fields are absent": "{{ 'tool_calls' in messages[2] }} {{ messages[2].keys() | list }}",
    "namespace": "{% set ns = namespace(n=0) %}"
    + _EACH
    + "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "generation": _EACH + "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "prompt": "{% if add_generation_prompt %}assistant:{% endif %}{{ tools is none }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_renders_like_transformers(name: str) -> None:
    source = TEMPLATES[name]
    plain = [{k: v for k, v in message.items() if v is not None} for message in MESSAGES]
    expected, _ = render_jinja_template(
        [plain], chat_template=source, add_generation_prompt=True, **SPECIAL
    )
    template = ChatTemplate(source, SPECIAL)
    assert template.render(MESSAGES, add_generation_prompt=True) == expected[0]


def test_date_and_extra_variables() -> None:
    template = ChatTemplate("{{ strftime_now('%Y') }} {{ enable_thinking }}", {})
    text = template.render(MESSAGES, add_generation_prompt=False, enable_thinking=False)
    year, thinking = text.split()
    assert year.isdigit()
    assert thinking == "False"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% if %}", "Expected an expression"),
        ("{{ messages[0].content + 1 }}", "can only concatenate str"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ undefined_thing.field }}", "'undefined_thing' is undefined"),
    ],
)
def test_failures_say_why(source: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=r"chat template does not accept") as caught:
        ChatTemplate(source, {}).render(MESSAGES, add_generation_prompt=True)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_messages() -> None:
    with pytest.raises(ChatTemplateError, match="at least one message"):
        ChatTemplate("x", {}).render([], add_generation_prompt=True)


def test_model_without_a_template(tmp_path: Path) -> None:
    make_tiny("llama", tmp_path, num_hidden_layers=1)
    (tmp_path / "chat_template.jinja").unlink()
    tokenizer = load_tokenizer(str(tmp_path))
    assert not tokenizer.has_chat_template
    with pytest.raises(ChatTemplateError, match="has no chat template"):
        tokenizer.apply_chat_template(MESSAGES)
