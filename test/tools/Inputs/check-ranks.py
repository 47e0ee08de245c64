"""What plans for several ranks promise: check-ranks.py CHECK CONFIGS, with `lmc` on the PATH."""

import json
import os
import subprocess
import sys
import tempfile

check, configs = sys.argv[1:]


def explain(config, *options):
    text = subprocess.check_output(["lmc", "explain", f"{configs}/{config}", "--json", *options])
    return json.loads(text)


def shipped():
    """Every shipped config compiles for its own number of ranks."""
    for config in sorted(os.listdir(configs)):
        if not config.endswith(".toml"):
            continue
        # The search of what is recomputed takes most of a minute where layers have experts.
        quick = ["--set=memory.recompute=block"] if config in ("mixtral-8x7b.toml", "qwen3-30b-a3b.toml") else []
        with tempfile.NamedTemporaryFile(suffix=".plan") as plan:
            done = subprocess.run(["lmc", "compile", f"{configs}/{config}", "--plan-only", "--quiet", "--target=cuda:sm_90a",
                                   *quick, "-o", plan.name], stderr=subprocess.PIPE, text=True)
            # A job may need more memory than this machine has; then it says how much.
            fits = done.returncode == 0
            assert fits or (done.returncode == 3 and "smallest budget" in done.stderr), done.stderr
            if fits:
                report = json.loads(subprocess.check_output(["lmc", "explain", plan.name, "--json"]))
                print(f"{config}: {report['comm']['ranks']} ranks")
            else:
                print(f"{config}: does not fit")


def state():
    """The ZeRO table: bytes of state per parameter and rank, in bf16 with AdamW.

    With one micro-step, or with reduce_gradients = "each", a rank keeps its piece of the gradients
    (4 bytes a parameter in f32, divided by the ranks). With several and "last", it keeps all of its
    own, too.
    Rajbhandari et al. 2020 count 2 bytes for gradients, which are kept in f32 here."""
    parts = ("parameters", "compute_copies", "gradients", "optimizer_state")
    for strategy in ("no_shard", "zero1", "zero2", "zero3"):
        for gas, reduce in ((1, "auto"), (2, "each"), (2, "last")):
            report = explain(
                "test-tiny.toml", "--nodes=1", "--devices-per-node=4", "--target=cpu",
                f"--set=distributed.strategy={strategy}", f"--set=training.batch_size={8 * gas}",
                "--set=training.micro_batch_size=2", "--set=training.compute_dtype=bf16",
                f"--set=distributed.reduce_gradients={reduce}",
                # sizes of which padding is less than a hundredth
                "--set=model.hidden_size=256", "--set=model.intermediate_size=1024",
                "--set=model.vocab_size=1024")
            count = report["model"]["parameters"]
            found = [report["memory"]["by_category"][part] / count for part in parts]
            print(f"{strategy} GAS {gas} {reduce}: " + " ".join(f"{x:.1f}" for x in found))


def reduce():
    """When gradients are summed over ranks: what is faster on the device, and what the budget has room for."""
    def job(choice, *options):
        return explain("test-tiny.toml", "--target=cuda:sm_90a", *MESH, "--set=distributed.strategy=zero2",
                       "--set=memory.recompute=none", f"--set=distributed.reduce_gradients={choice}", *options)
    last, each = (job(choice) for choice in ("last", "each"))
    peaks = [report["memory"]["peak_bytes"] for report in (last, each)]
    speeds = [report["cost"]["tokens_per_second_per_device"] for report in (last, each)]
    assert peaks[0] > peaks[1] and speeds[0] > speeds[1], (peaks, speeds)
    for name, budget in (("room for both", peaks[0]), ("room for one", peaks[1])):
        report = job("auto", f"--memory-budget={budget}")
        fitting = [attempt["fits"] for attempt in report["reduce_gradients"]["attempts"]]
        print(f"{name}: {report['reduce_gradients']['chosen']}, the plans of last and each fit: {fitting}")
    for strategy in ("no_shard", "zero1"):
        report = job("auto", f"--set=distributed.strategy={strategy}")
        print(f"{strategy}:", "a choice" if "reduce_gradients" in report else "no choice")


def copies():
    """Gradients that no_shard sums over ranks lie where those of one rank lie: a rank's plan takes
    no more memory for them than the plan of one rank."""
    def peak(ranks, gas, reduce):
        report = explain("test-tiny.toml", f"--nodes={ranks}", "--devices-per-node=1", "--target=cpu",
                         "--set=distributed.strategy=no_shard", f"--set=training.batch_size={2 * ranks * gas}",
                         f"--set=distributed.reduce_gradients={reduce}", "--set=training.micro_batch_size=2",
                         "--set=model.tie_word_embeddings=false",
                         # sizes of whole blocks, which need no padding
                         "--set=model.hidden_size=256", "--set=model.intermediate_size=1024",
                         "--set=model.vocab_size=1024")
        return report["memory"]["peak_bytes"]
    for gas, reduce in ((1, "auto"), (3, "last")):
        print(f"GAS {gas}: {peak(4, gas, reduce) - peak(1, gas, 'auto')} bytes more")


def traffic():
    """Bytes that a rank sends in a step, as a multiple of the parameters' bytes in bf16 or f32."""
    for strategy, group in (("no_shard", "auto"), ("zero1", "auto"), ("zero2", "auto"),
                            ("zero3", "auto"), ("hybrid_shard", "node")):
        report = explain(
            "test-tiny.toml", "--nodes=2", "--devices-per-node=2", "--target=cpu",
            f"--set=distributed.strategy={strategy}", f"--set=distributed.shard_group={group}", RESHARD,
            "--set=training.batch_size=8", "--set=training.micro_batch_size=2",
            "--set=model.hidden_size=256", "--set=model.intermediate_size=1024",
            "--set=model.vocab_size=1024")
        sums = {}
        for each in report["comm"]["collectives"]:
            key = f"{each['kind']} {each['axis']}"
            sums[key] = sums.get(key, 0) + each["sent_bytes_per_step"] / 4 / report["model"]["parameters"]
        print(f"{strategy}: " + ", ".join(f"{key} {value:.2f}" for key, value in sums.items()))


def matrix():
    """Every strategy on every mesh makes a plan, also where nothing is divided evenly."""
    plans = 0
    meshes = ((1, 2), (2, 2), (1, 4), (4, 1), (1, 3))
    sizes = ([], ["model.hidden_size=48", "model.num_attention_heads=2",
                  "model.num_key_value_heads=1", "model.intermediate_size=80",
                  "model.vocab_size=101"])
    jobs = (["training.compute_dtype=f64"], ["training.compute_dtype=bf16"],
            ["training.compute_dtype=bf16", "optimizer.type=adamw8bit", "memory.recompute=block"],
            ["training.compute_dtype=bf16", "optimizer.type=muon", "optimizer.muon_owners=yes"],
            ["training.compute_dtype=f32", "distributed.reduce_dtype=bf16",
             "distributed.reshard_after_forward=no"],
            ["training.compute_dtype=bf16", "distributed.reduce_dtype=f16"],
            ["training.compute_dtype=bf16", "memory.recompute=auto", "training.document_mask=true",
             "model.tie_word_embeddings=true", "model.attention_bias=true"])
    strategies = ("no_shard", "zero1", "zero2", "zero3", "hybrid_shard", "hybrid_shard_zero2")
    number = 0
    for strategy in strategies:
        for nodes, devices in meshes:
            for gas, reduce in ((1, "auto"), (3, "last"), (3, "each")):
                # Each combination takes one of the jobs, sizes and overlaps in turn.
                job = jobs[number % len(jobs)] + sizes[number // len(jobs) % len(sizes)]
                job = job + [f"distributed.overlap={OVERLAPS[number % len(OVERLAPS)]}"]
                number += 1
                ranks = nodes * devices
                options = [f"--nodes={nodes}", f"--devices-per-node={devices}", "--target=cpu",
                           f"--set=distributed.strategy={strategy}",
                           f"--set=distributed.reduce_gradients={reduce}",
                           f"--set=training.batch_size={ranks * gas * 2}",
                           "--set=training.micro_batch_size=2"] + [f"--set={each}" for each in job]
                report = explain("test-tiny.toml", *options)
                assert report["comm"]["ranks"] == ranks, options
                assert ranks == 1 or report["comm"]["sent_bytes_per_step"] > 0, options
                plans += 1
    print(f"{plans} plans")


RESHARD = "--set=distributed.reshard_after_forward=yes"
OVERLAPS = ("yes", "gathers", "no")
MESH = ["--nodes=2", "--devices-per-node=2", "--set=training.batch_size=24",
        "--set=training.micro_batch_size=2"]


def overlap():
    """More overlap moves the same bytes, and the device waits for less of it."""
    for strategy in ("no_shard", "zero1", "zero2", "zero3", "hybrid_shard", "hybrid_shard_zero2"):
        for reduce in ("each", "last"):
            found = [explain("test-tiny.toml", "--target=cuda:sm_90a", *MESH, RESHARD,
                             f"--set=distributed.strategy={strategy}",
                             f"--set=distributed.reduce_gradients={reduce}",
                             f"--set=distributed.overlap={choice}") for choice in OVERLAPS]
            comm = [report["comm"] for report in found]
            exposed = [each["exposed_seconds_per_step"] for each in comm]
            assert len({each["sent_bytes_per_step"] for each in comm}) == 1, strategy
            assert exposed == sorted(exposed), (strategy, exposed)
            assert abs(exposed[2] - comm[2]["seconds_per_step"]) < 1e-9 * exposed[2], strategy
            steps = [report["cost"]["step_seconds"] for report in found]
            assert steps == sorted(steps), (strategy, steps)
            print(f"{strategy} {reduce}: weights " + ("overlap" if exposed[1] < exposed[2] else "do not") +
                  ", gradients " + ("overlap" if exposed[0] < exposed[1] else "do not"))


def budget():
    """The choice of the overlap: the fastest plan within the budget."""
    # Each overlap takes memory of its own.
    model = ["--set=model.hidden_size=256", "--set=model.intermediate_size=1024",
             "--set=memory.recompute=none", "--set=distributed.reduce_gradients=each", RESHARD]

    def job(choice, *options):
        return explain("test-tiny.toml", "--target=cuda:sm_90a", *MESH, "--set=distributed.strategy=zero3",
                       *model, f"--set=distributed.overlap={choice}", *options)
    peaks = [job(choice)["memory"]["peak_bytes"] for choice in OVERLAPS]
    assert peaks == sorted(peaks, reverse=True) and len(set(peaks)) == 3, peaks
    for place, most in enumerate(peaks):
        report = job("auto", f"--memory-budget={most}")
        assert report["memory"]["peak_bytes"] <= most
        reasons = {each["exposed_because"] for each in report["comm"]["collectives"]}
        print(f"budget of {OVERLAPS[place]}: {report['comm']['overlap']} of "
              f"{len(report['overlap']['attempts'])} attempts, {sorted(r for r in reasons if r and 'budget' in r)}")
    with tempfile.NamedTemporaryFile(suffix=".plan") as plan:
        failed = subprocess.run(["lmc", "compile", f"{configs}/test-tiny.toml", "--target=cuda:sm_90a", *MESH,
                                 "--set=distributed.strategy=zero3", *model, "--plan-only",
                                 f"--memory-budget={peaks[2] - 1}", "-o", plan.name],
                                capture_output=True, text=True)
    assert failed.returncode == 3 and f" {peaks[2]} bytes" in failed.stderr, failed
    print("less than that of no: the smallest budget is that of no")


def kept():
    """Which layers keep their gathered weights: the fastest plan within the budget."""
    def job(reshard, recompute, *options):
        return explain("test-tiny.toml", "--target=cpu", *MESH, "--set=distributed.strategy=zero3",
                       "--set=distributed.overlap=yes", "--set=distributed.reduce_gradients=each",
                       "--set=model.num_hidden_layers=6",
                       "--set=model.hidden_size=1024", "--set=model.intermediate_size=4096",
                       f"--set=memory.recompute={recompute}",
                       f"--set=distributed.reshard_after_forward={reshard}", *options)
    for recompute in ("none", "auto"):
        again, stay = (job(reshard, recompute) for reshard in ("yes", "no"))
        peaks = [report["memory"]["peak_bytes"] for report in (again, stay)]
        assert peaks[0] < peaks[1] and "reshard" not in again
        bounds = [report["cost"]["step_seconds"] for report in (stay, again)]
        budgets = {"all": peaks[1], "some": sum(peaks) // 2, "few": peaks[0]}
        steps, counts = [], []
        for name in ("some",) if recompute == "auto" else budgets:
            report = job("auto", recompute, f"--memory-budget={budgets[name]}")
            assert report["memory"]["peak_bytes"] <= budgets[name], name
            assert report["recompute"]["mode"] == recompute
            layers = report["reshard"]["kept_layers"]
            assert (report["reshard"]["kept_bytes"] > 0) == (len(layers) > 0)
            assert (report["reshard"]["saved_seconds_per_step"] > 0) == (len(layers) > 0)
            steps.append(report["cost"]["step_seconds"])
            counts.append(len(layers))
            print(f"{recompute}, room for {name}: layers {layers}")
        assert counts == sorted(set(counts), reverse=True), counts
        assert steps == sorted(set(steps)) and bounds[0] * 0.999 < steps[0] and steps[-1] < bounds[1], (steps, bounds)
    # Three layers save less than 0.2% of a step with such a head, and 24 layers save 1%.
    report = explain("test-tiny.toml", "--target=cpu", "--nodes=2", "--devices-per-node=2",
                     "--set=distributed.strategy=zero3", "--set=distributed.overlap=no", "--set=memory.recompute=none",
                     "--set=training.batch_size=1024", "--set=training.micro_batch_size=256",
                     "--set=model.vocab_size=32768", "--set=model.num_hidden_layers=24")
    assert report["reshard"]["saved_seconds_per_step"] > 0.01 * report["cost"]["step_seconds"]
    print(f"a large head: {len(report['reshard']['kept_layers'])} of 24 layers")


{"shipped": shipped, "state": state, "reduce": reduce, "copies": copies, "traffic": traffic, "matrix": matrix, "overlap": overlap,
 "budget": budget, "kept": kept}[check]()
