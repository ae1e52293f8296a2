"""Settings to paste: in each engine's form, and only what was measured."""

import json
import shlex
from collections.abc import Sequence

import pytest

from slipstream.speculation.policy.settings import parse_schedule
from slipstream.verdict.results import Configuration, Results
from slipstream.verdict.schedules import Setting, Step, flag, schedule, settings_to_paste
from tests.verdict.synthetic import Speed, configuration, off, paying_until, results

LEVELS = (1, 2, 5, 10, 30)


def three(engine: str, commands: Sequence[str], **kwargs: int) -> Results:
    """K of 4 pays up to 3 requests, K of 2 up to 12, and none from there on."""
    speeds: dict[str, Speed] = {
        "off": off,
        "two": paying_until(12.5, 0.12),
        "four": paying_until(6.0, 0.3),
    }
    configurations = [
        configuration(name, k, shlex.split(command), engine)
        for (name, k), command in zip(
            {"off": 0, "two": 2, "four": 4}.items(), commands, strict=True
        )
    ]
    return results(speeds, LEVELS, noise=0.003, configurations=configurations, **kwargs)


def vllm_command(k: int, method: str = "eagle3") -> str:
    config = {"method": method, "model": "drafter", "num_speculative_tokens": k}
    return f"vllm serve model --speculative-config {shlex.quote(json.dumps(config))}"


def of_vllm(found: Sequence[Setting]) -> dict[str, object]:
    (setting,) = found
    name, config = shlex.split(setting.text)
    assert name == "--speculative-config"
    parsed = json.loads(config)
    assert isinstance(parsed, dict)
    return parsed


def test_the_schedule_changes_where_the_choices_are_equally_fast() -> None:
    found = three("vllm", ["vllm serve model", vllm_command(2), vllm_command(4)])
    steps = schedule(found, found.configurations)
    # 0.12 ln(12.5/c) = 0.3 ln(6/c) at c = 3.7
    assert steps == [Step(1, 3, 4), Step(4, 12, 2), Step(13, None, 0)]


def test_the_vllm_schedule() -> None:
    found = three("vllm", ["vllm serve model", vllm_command(2), vllm_command(4)])
    assert of_vllm(settings_to_paste(found)) == {
        "method": "eagle3",
        "model": "drafter",
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 3, 4], [4, 12, 2], [13, 30, 0]],
    }


def test_only_drafters_of_one_kind_are_in_a_schedule() -> None:
    found = three("vllm", ["vllm serve model", vllm_command(2, "ngram"), vllm_command(4)])
    (setting,) = settings_to_paste(found)
    schedule = of_vllm([setting])["num_speculative_tokens_per_batch_size"]
    assert schedule in ([[1, 5, 4], [6, 30, 0]], [[1, 12, 2], [13, 30, 0]])
    assert any("two" in note or "four" in note for note in setting.notes)


def test_no_schedule_where_one_choice_is_best_everywhere() -> None:
    found = results(
        {"off": off, "two": lambda c: 1.3 * off(c)},
        configurations=[
            configuration("off", 0, ["vllm", "serve", "model"], "vllm"),
            configuration("two", 2, shlex.split(vllm_command(2)), "vllm"),
        ],
    )
    (setting,) = settings_to_paste(found)
    assert shlex.split(setting.text) == shlex.split(vllm_command(2))
    assert "single" in setting.title


def test_noise_does_not_switch_back_and_forth() -> None:
    found = three("vllm", ["vllm serve model", vllm_command(2), vllm_command(4)])
    switches = 0
    for seed in range(20):
        alike = results(
            {"off": off, "two": off, "four": off},
            LEVELS,
            noise=0.01,
            seed=seed,
            configurations=found.configurations,
        )
        switches += len(schedule(alike, alike.configurations)) - 1
    assert switches <= 6  # of 80


def test_the_tensorrt_llm_schedule_goes_up_to_its_keys() -> None:
    found = three("tensorrt-llm", ["trtllm-serve"] * 3)
    (setting,) = settings_to_paste(found)
    assert setting.text.splitlines() == [
        "speculative_config:",
        "  max_draft_len: 4",
        "  draft_len_schedule: {3: 4, 12: 2}",  # above: nothing is drafted
    ]
    assert "{1: 4, 4: 2, 13: 0}" in " ".join(setting.notes)


def test_the_tensorrt_llm_schedule_never_rises() -> None:
    found = results(
        {"off": off, "two": lambda c: 1.2 * off(c), "four": paying_until(3.0, -0.3)},
        LEVELS,
        configurations=[
            configuration(name, k, ["trtllm-serve"], "tensorrt-llm")
            for name, k in {"off": 0, "two": 2, "four": 4}.items()
        ],
    )
    (setting,) = settings_to_paste(found)
    assert "draft_len_schedule" not in setting.text  # 2 everywhere


def sglang_command(k: int, topk: int = 1) -> str:
    return (
        "python -m sglang.launch_server --speculative-algorithm EAGLE3 "
        f"--speculative-eagle-topk {topk} --speculative-num-steps {k} "
        f"--speculative-num-draft-tokens {k + 1}"
    )


def test_sglang_gets_a_single_choice_and_for_chains_a_schedule() -> None:
    commands = ["python -m sglang.launch_server", sglang_command(2), sglang_command(4)]
    single, by_load = settings_to_paste(three("sglang", commands))
    assert single.text == sglang_command(2)
    echo, flags = by_load.text.splitlines()
    assert json.loads(shlex.split(echo)[1]) == {
        "1": {"candidate_steps": [4]},
        "4": {"candidate_steps": [2]},
        "13": {"candidate_steps": [0]},
    }
    assert "--speculative-num-steps 4 " in flags
    assert "--speculative-num-draft-tokens 5 " in flags


def test_sglang_has_no_schedule_for_trees() -> None:
    commands = ["python -m sglang.launch_server", sglang_command(2, 4), sglang_command(4, 4)]
    assert len(settings_to_paste(three("sglang", commands))) == 1


def slipstream_command(k: int) -> str:
    return (
        "slipstream serve --speculation fixed --speculative-num-steps 4 --speculative-eagle-topk=2 "
        f"--speculative-num-draft-tokens {k + 1}"
    )


def test_our_own_schedule_counts_the_root() -> None:
    commands = ["slipstream serve --speculation off", slipstream_command(2), slipstream_command(4)]
    *_, by_load = settings_to_paste(three("slipstream", commands))
    _, value, *shape = by_load.text.split()
    assert value == "schedule:1-3=5,4-12=3,13-=1"
    assert shape == ["--speculative-num-steps", "4", "--speculative-eagle-topk", "2"]
    steps = parse_schedule(value.removeprefix("schedule:"), 64)
    assert [step.rows for step in steps] == [5, 3, 1]


def test_adaptive_is_the_setting_where_it_is_the_best() -> None:
    found = results({"off": off, "fixed": paying_until(4.0), "adaptive": lambda c: 1.2 * off(c)})
    assert settings_to_paste(found)[0].text == "--speculation adaptive"


def test_loads_by_rate_and_servers_without_k_have_no_schedule() -> None:
    found = results({"off": off, "fixed": paying_until(4.0)})
    found.configurations = [
        Configuration("off", None, "http://a", "unknown", "m", None),
        Configuration("fixed", None, "http://b", "unknown", "m", None),
    ]
    (setting,) = settings_to_paste(found)
    assert setting.text in ("# the server at http://a", "# the server at http://b")


def test_no_measurements_no_settings() -> None:
    found = three("vllm", ["vllm serve model", vllm_command(2), vllm_command(4)])
    found.measurements = []
    assert not settings_to_paste(found)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["x", "--k", "3"], "3"),
        (["x", "--k=3"], "3"),
        (["sh", "-c", "exec x --k 3"], "3"),
        (["exec x --k '3'"], "3"),
        (["x"], None),
    ],
)
def test_flags_of_commands(command: list[str], expected: str | None) -> None:
    assert flag(configuration("any", 1, command), "--k") == expected


def test_a_gain_that_is_not_sure_does_not_turn_drafting_on() -> None:
    schedules = []
    for seed in range(20):
        found = results({"off": off, "small": off}, (1, 10), noise=0.01, seed=seed)
        schedules.append(schedule(found, found.configurations))
    # One interval in twenty is wrong, and there are two loads.
    assert schedules.count([Step(1, None, 0)]) >= 15
