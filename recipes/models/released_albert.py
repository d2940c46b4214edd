"""ALBERT as it was released for chemical reactions, without a download from the Hub. Read it top to bottom.

    pip install --no-deps rxnmapper
    python recipes/models/released_albert.py --output PATH/TO/albert

The package holds the weights of Schwaller et al. 2021: one block, called twelve times, trained to fill gaps in
reactions written as text (SMILES). The recipe makes a checkpoint folder of it, fills every gap of a few reactions to
check that the weights were copied correctly, and then explains the word in one gap of each.
"""

import argparse
from pathlib import Path

import torch
from released_checks import explain_and_check, folder_of
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import AlbertConfig, AlbertForMaskedLM, PreTrainedTokenizerFast

REACTIONS = [  # amide, ester, Suzuki, ether, reduction, aromatic substitution
    "CC(=O)Cl.NCc1ccccc1>>CC(=O)NCc1ccccc1",
    "CCO.CC(=O)Cl>>CCOC(C)=O",
    "OB(O)c1ccccc1.Brc1ccncc1>>c1ccc(-c2ccncc2)cc1",
    "Oc1ccccc1.CCBr>>CCOc1ccccc1",
    "O=Cc1ccccc1.[BH4-].[Na+]>>OCc1ccccc1",
    "CC(C)S.Fc1cccnc1F>>CC(C)Sc1ncccc1F",
]
GAPPED = [  # the atom that comes from the other molecule
    "CC(=O)Cl.NCc1ccccc1>>CC(=O)[MASK]Cc1ccccc1",
    "CCO.CC(=O)Cl>>CC[MASK]C(C)=O",
    "OB(O)c1ccccc1.Brc1ccncc1>>c1ccc(-c2cc[MASK]cc2)cc1",
    "Oc1ccccc1.CCBr>>CC[MASK]c1ccccc1",
    "O=Cc1ccccc1.[BH4-].[Na+]>>[MASK]Cc1ccccc1",
    "CC(C)S.Fc1cccnc1F>>CC(C)[MASK]c1ncccc1F",
]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--weights", type=Path, help="folder; default: the one inside the installed package rxnmapper")
parser.add_argument("--output", type=Path, required=True, help="folder for the checkpoint")
args = parser.parse_args()

if args.weights is None:
    package = folder_of("rxnmapper")
    if package is None:
        parser.error("rxnmapper is not installed: pip install --no-deps rxnmapper, or give --weights")
    args.weights = next(package.glob("models/transformers/albert*"))

weights = torch.load(args.weights / "pytorch_model.bin", map_location="cpu", weights_only=True)
model = AlbertForMaskedLM(AlbertConfig.from_pretrained(args.weights)).eval()
loading = model.load_state_dict(weights, strict=False)
if loading.missing_keys or any("pooler" not in key for key in loading.unexpected_keys):  # a pooler fills no gaps
    raise ValueError(f"these are not the weights of this model: {loading}")

words = (args.weights / "vocab.txt").read_text().split()
ids = {word: number for number, word in enumerate(words)}
smiles = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
smiles.pre_tokenizer = pre_tokenizers.Split(Regex(r"\[[^\]]*\]|Br|Cl|%\d\d|>>|."), "isolated")  # atoms, bonds, rings
ends = [(end, ids[end]) for end in ("[CLS]", "[SEP]")]
smiles.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
special = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "pad", "cls", "sep", "mask")}
tokenizer = PreTrainedTokenizerFast(tokenizer_object=smiles, model_max_length=512, **special)
model.save_pretrained(args.output)
tokenizer.save_pretrained(args.output)

correct = gaps = 0
for reaction in REACTIONS:
    input_ids = tokenizer(reaction, return_tensors="pt").input_ids[0]
    positions = torch.arange(1, len(input_ids) - 1)
    gapped = input_ids.repeat(len(positions), 1)
    gapped[positions - 1, positions] = ids["[MASK]"]
    with torch.no_grad():
        filled = model(gapped).logits[positions - 1, positions].argmax(-1)
    correct, gaps = correct + int((filled == input_ids[1:-1]).sum()), gaps + len(positions)
millions = sum(p.numel() for p in model.parameters()) / 1e6
print(f"{args.output}: {millions:.1f}M parameters; {correct} of {gaps} gaps filled as they were")

explain_and_check(args.output, GAPPED)
