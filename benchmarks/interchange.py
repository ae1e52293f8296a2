"""Whether another engine accepts as much of the packaged drafter's guesses as Slipstream does.

    slipstream export default --out target
    python benchmarks/interchange.py slipstream --json ours.json
    VLLM/bin/python benchmarks/interchange.py vllm --target target --like ours.json --json vllm.json

The first run answers packaged prompts with chains of draft tokens: greedy, one request at a time,
end tokens respected. The second needs vLLM and not Slipstream, answers the same token ids with
chains of the same length, and compares: accepted length (tokens per step, from the second token
on), acceptance by depth (of the steps that got to a depth, the share that also accepted the next
token), and how many answers are the same. Engines round differently, so some answers differ.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

DRAFTER = Path(__file__).parent.parent / "slipstream/drafters/smollm2-135m-instruct-eagle3"

Answer = list[list[int]]  # the tokens of each step; the first step has the first token alone
Answers = Callable[[list[int]], Answer]  # from the token ids of a prompt


def slipstream(arguments: argparse.Namespace) -> dict[str, Any]:
    """A new run: prompts, settings, and Slipstream's answers."""
    from slipstream import __version__
    from slipstream.bench.prompt_sets import load_prompts
    from slipstream.engine.engine import Engine
    from slipstream.engine.load import load_engine
    from slipstream.engine.messages import Submit
    from slipstream.engine.options import EngineOptions
    from slipstream.engine.params import SamplingParams, Speculation, TreeShape
    from slipstream.models.tokenizer import load_tokenizer

    length = arguments.draft_tokens
    tokenizer = load_tokenizer("default")
    params = SamplingParams(
        max_tokens=arguments.max_tokens,
        temperature=0,
        stop_token_ids=tokenizer.eos_token_ids,
        speculation=Speculation("fixed", TreeShape(length, 1, length + 1)),
    )
    options = EngineOptions(model="default", max_running_requests=1, prefix_cache=False)
    engine: Engine = load_engine(options)[0]

    def answer(prompt: list[int]) -> Answer:
        engine.submit(Submit(0, prompt, params))
        steps: Answer = []
        while engine.busy:
            steps += [list(delta.token_ids) for delta in engine.step()]
        return steps

    chats = load_prompts(arguments.prompts)[:: arguments.every]
    run = {
        "engine": f"Slipstream {__version__}",
        "draft_tokens": length,
        "max_tokens": arguments.max_tokens,
        "stop_token_ids": list(tokenizer.eos_token_ids),
        "prompts": [tokenizer.apply_chat_template(chat) for chat in chats],
    }
    return answered(run, answer)


def vllm(arguments: argparse.Namespace, like: dict[str, Any]) -> dict[str, Any]:
    """The run ``like`` with vLLM's answers."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # a call of step is a step of the engine
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
    sys.path.pop(0)  # transformers would take kernels.py of this folder for a package of that name

    from vllm import LLM, SamplingParams, __version__
    from vllm.sampling_params import RequestOutputKind

    engine = LLM(
        str(arguments.target),
        speculative_config={
            "method": "eagle3",
            "model": str(DRAFTER),
            "num_speculative_tokens": like["draft_tokens"],
        },
        dtype=arguments.dtype,
        enforce_eager=True,
        enable_prefix_caching=False,
        max_model_len=1024,
        max_num_seqs=1,
    ).llm_engine
    params = SamplingParams(
        temperature=0,
        max_tokens=like["max_tokens"],
        stop_token_ids=like["stop_token_ids"],
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )

    def answer(prompt: list[int]) -> Answer:
        engine.add_request("0", {"prompt_token_ids": prompt}, params)
        steps: Answer = []
        while engine.has_unfinished_requests():
            steps += [list(output.outputs[0].token_ids) for output in engine.step()]
        return [step for step in steps if step]

    return answered(like | {"engine": f"vLLM {__version__}, {arguments.dtype}"}, answer)


def answered(run: dict[str, Any], answer: Answers) -> dict[str, Any]:
    answers = []
    for number, prompt in enumerate(run["prompts"]):
        answers.append(answer(prompt))
        print(f"prompt {number}: {accepted_length(answers[-1:]):.2f}", flush=True)
    return run | {"answers": answers}


def accepted_length(answers: list[Answer]) -> float:
    lengths = [len(step) for answer in answers for step in answer[1:]]
    return sum(lengths) / max(len(lengths), 1)


def show(run: dict[str, Any]) -> None:
    accepted = [len(step) - 1 for answer in run["answers"] for step in answer[1:]]
    reached = [sum(n >= depth for n in accepted) for depth in range(run["draft_tokens"] + 1)]
    depths = (f"{after / max(before, 1):.2f}" for before, after in pairwise(reached))
    print(
        f"{run['engine']}: {len(run['answers'])} prompts, {len(accepted)} steps, accepted length "
        f"{accepted_length(run['answers']):.2f}, by depth {' '.join(depths)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=("slipstream", "vllm"))
    parser.add_argument("--json", type=Path, required=True, help="file for prompts and answers")
    ours = parser.add_argument_group("slipstream")
    ours.add_argument("--prompts", default="coding", help="as for slipstream bench")
    ours.add_argument("--every", type=int, default=8, help="take every n-th prompt only")
    ours.add_argument("--draft-tokens", type=int, default=3)
    ours.add_argument("--max-tokens", type=int, default=128)
    theirs = parser.add_argument_group("vllm")
    theirs.add_argument("--like", type=Path, help="the file that the run of Slipstream wrote")
    theirs.add_argument("--target", type=Path, help="the folder with the exported target")
    theirs.add_argument("--dtype", default="float32")
    arguments = parser.parse_args()
    runs = []
    if arguments.engine == "slipstream":
        runs.append(slipstream(arguments))
    elif not arguments.like or not arguments.target:
        parser.error("vllm needs --like and --target")
    else:
        like = json.loads(arguments.like.read_text())
        runs += [like, vllm(arguments, like)]
    arguments.json.write_text(json.dumps(runs[-1]) + "\n")
    for run in runs:
        show(run)
    if len(runs) == 2:
        texts = [[list(chain(*answer)) for answer in run["answers"]] for run in runs]
        same = sum(a == b for a, b in zip(*texts, strict=True))
        print(f"{same} of {len(texts[0])} answers are the same")


if __name__ == "__main__":
    main()
