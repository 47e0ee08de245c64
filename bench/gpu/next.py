"""What the next GPU runs, in this order: `./run next`. The first items say whether what follows can be trusted.

Each item is a part of a section, with a limit of its own, and is written down as it ends. What an item leaves of its
limit is not lost: the next one begins. Together they take less than a quarter of an hour. bench/gpu/PENDING.md is this
list in words; `test/parity/test_gpu.py` compares the two.
"""

# Name, section, the items of the section (a regular expression, as of --only), seconds.
NEXT = (
    ("instructions", "ceilings", "^instructions$", 25),
    ("smoke", "smoke", "", 31),
    ("power", "power", "", 80),
    ("attention", "attention", "MBS 16, 2048|Llama 3 8B|heads of 256", 60),
    ("products", "products", "", 55),
    ("streams", "streams", "", 63),
    ("steps", "steps", "^llama1b MBS (16|32)", 100),
    ("eight bits", "steps", "^fp8", 75),
    ("peers", "training", "PyTorch tuned MBS 16( GAS 8)?$", 150),
    ("experts", "experts", "lmc bench", 55),
    ("larger steps", "steps", "mistral|MBS 64", 60),
    ("sanitizers", "kernels", "check small-(attention|attention_grad_keys|linear_cross_entropy_grad|long_rows|rms_norm)$",
     50),
)
