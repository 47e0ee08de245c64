"""What the next GPU runs, in this order: `./run next`. The first items say whether what follows can be trusted.

Each item is a part of a section, with a limit of its own, and is written down as it ends. Together they take what a loan
of a GPU leaves. bench/gpu/PENDING.md is this list in words; `test/parity/test_gpu.py` compares the two."""

# Name, section, the items of the section (a regular expression, as of --only), seconds.
NEXT = (
    ("instructions", "ceilings", "^instructions$", 25),
    ("smoke", "smoke", "expert|heads64|device|memory", 60),
    ("power", "power", "", 90),
    ("attention", "attention", "MBS 16, 2048|Llama 3 8B|heads of 256", 130),
    ("products", "products", "", 60),
    ("streams", "streams", "", 60),
    ("steps", "steps", "^llama1b MBS (16|32)", 110),
    ("peers", "training", "PyTorch tuned MBS 16( GAS 8)?$", 110),
    ("experts", "experts", "lmc bench", 40),
    ("larger steps", "steps", "mistral|MBS 64", 55),
    ("sanitizers", "kernels", "check small-(attention|linear_cross_entropy_grad|rms_norm$)", 60),
)
