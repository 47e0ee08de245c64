// The keys of a run: [checkpoint], [monitoring], [generation] and [guard].
#include "ground/config/keys/Rows.h"

namespace lmc::config::keys {

void Rows::run() {
  section("checkpoint", "What is saved, and how often.", runTime);
  KEY(checkpoint.interval, steps(0), defaultText("by `interval_minutes`"),
      "Steps between checkpoints; 0: only at the end.");
  KEY(checkpoint.intervalMinutes, range(0, 1e6, "minutes"),
      "Minutes between checkpoints, in the place of `interval`: the run takes as many steps as the "
      "predicted time of a step gives, so that all ranks and all restarts save after the same "
      "steps. Without a prediction (a plan without a device spec) it is 1,000 steps. 0: only at "
      "the end.");
  KEY(checkpoint.keep, range(0, kMaxInt32, "checkpoints"), "Newest checkpoints to keep; 0: all.");
  KEY(checkpoint.keepEvery, steps(0),
      "Checkpoints whose step is a multiple of this are made, whatever `interval` says, and kept "
      "beside the newest; 0: none.");
  KEY(checkpoint.keepBest, optional,
      "The checkpoint with the lowest validation loss is kept beside the newest: "
      "`data.validation`, or the name of a `[[validation]]` set. The loss of a checkpoint is that "
      "of the latest validation before it.");
  KEY(checkpoint.saveBest,
      "Save, too, after each validation in which the loss of `keep_best` is the lowest of the "
      "run.");
  KEY(checkpoint.background,
      "Copy the state to the host's memory, and write checkpoints and exports from there behind "
      "the next steps. If the host has too little memory for the copy, steps wait, as with "
      "`false`.");
  KEY(checkpoint.exportInterval, steps(0),
      "Steps between Hugging Face exports, which are kept; 0: none.");
  KEY(checkpoint.exportCommand, optional,
      "Command for `/bin/sh` that is run for each export of `export_interval`, such as "
      "lm-evaluation-harness ([evaluating exports](running.md#evaluating-exports)).");

  section("monitoring", "What is reported, and how often.", runTime);
  KEY(monitoring.logInterval, steps(1),
      "Steps between lines on the console; `metrics.jsonl` has every step.");
  KEY(monitoring.validationInterval, steps(0), "Steps between validations; 0: only at the end.");
  KEY(monitoring.validationIters, range(0, kMaxSteps, "batches"),
      "Global batches per validation; 0: all of the data.");
  KEY(monitoring.tensorboard,
      "Write TensorBoard event files to `tensorboard/` in the run's folder.");
  KEY(monitoring.prometheus, optional,
      "File for the textfile collector of Prometheus's node_exporter; its name ends in `.prom`. A "
      "relative path is in the run's folder.");
  KEY(monitoring.onEvent, optional,
      "Command for `/bin/sh` that is started for each event of the run ([watching a "
      "run](running.md#watching-a-run)) and never waited for.");
  KEY(monitoring.wandbProject, optional,
      "Project of Weights & Biases that `lmc-wandb`, which is started beside the run, sends the "
      "metrics to.");
  KEY(monitoring.wandbEntity, defaultText("that of the user"), "User or team of that project.");
  KEY(monitoring.wandbGroup, optional, "Group of the run there.");
  KEY(monitoring.wandbName, defaultText("the name of the run's folder"), "Name of the run there.");
  KEY(monitoring.logits, compiled,
      "For debugging: also compile a function that writes the logits.");
  KEY(monitoring.router, compiled,
      "Write to `metrics.jsonl` what the [routers](running.md#routers-of-experts) of each layer "
      "with experts do. Without it the plan has no command for that.");

  section("generation", "Prompts that the model continues during training, for people to read.",
          runTime);
  KEY(generation.prompts, optional,
      "File with prompts that the model continues now and then, relative to this file: one per "
      "line or, if its name ends in `.jsonl`, one object `{\"prompt\": TEXT}` per line. The "
      "results go to `generated.jsonl`. The plan must be compiled with a file; a run may name "
      "another.");
  KEY(generation.interval, steps(0), "Steps between generations; 0: only at the end.");
  KEY(generation.maxNewTokens, range(1, 1e6, "tokens"),
      "Tokens that are generated for a prompt at most. Each costs a forward pass over MBS "
      "sequences.");
  KEY(generation.temperature, range(0, 100),
      "Logits are divided by this before a token is drawn; 0: the most likely token is taken.");
  KEY(generation.topP, fraction,
      "A token is drawn from the fewest tokens whose probabilities have at least this sum (nucleus "
      "sampling, arXiv 1904.09751).");

  section("guard", "When to warn of a run that goes wrong, and when to stop it.", runTime);
  KEY(guard.action, choices({"stop", "warn", "off"}),
      "What happens when the loss has diverged for good: `stop` ends the run with exit code 4 and "
      "keeps the diverged state aside, `warn` only warns, `off` does not look.");
  KEY(guard.onSpike, choices({"warn", "skip", "rollback", "stop"}), identity,
      "What happens at a spike: `warn` only warns; `skip` leaves out the update of each step that "
      "is above the limits of `spike`, as the steps up to two before it give them; `rollback` goes "
      "back to the newest checkpoint from before the spike, and on behind the data that was read "
      "so far; `stop` ends the run with exit code 4.");
  KEY(guard.rollbacks, range(0, 1e6),
      "How often a run goes back at most; a further spike ends it with exit code 4. See `refund`.");
  KEY(guard.refund, steps(0),
      "After so many steps without a spike, the rollbacks before count no more; 0: all of a run "
      "count.");
  KEY(guard.skipSteps, optional, identity,
      "Steps whose update is left out, such as `\"120,130-140\"`. Their data is read, and the "
      "schedule goes on, but weights and moments stay as they are.");
  KEY(guard.window, range(10, 1e6, "steps"),
      "Steps over which the running deviations of the loss and of the gradient norm reach; their "
      "running means reach over a tenth of it.");
  KEY(guard.spike, range(2, 1000, "deviations"),
      "A step is high if its loss or gradient norm is more than this many deviations above its "
      "running mean. Two high steps in a row are a spike, which gives a warning, and so is one "
      "whose loss and norm are both high, or that is far outside of what the run has shown "
      "([spikes](running.md#spikes-and-divergence)).");
  KEY(guard.patience, range(1, 1e6, "steps"),
      "A loss that stays high for this many steps, and does not fall back, has diverged.");
  KEY(guard.rise, range(0.01, 1000, "nats"),
      "A loss of more than this above its lowest level is high.");
  KEY(guard.plateau, fraction,
      "A loss whose mean over the latest eighth of the run's steps is less than this part of it "
      "below that of the eighth before gives a warning, if noise does not hide a fall; 0: none.");
  KEY(guard.validation, range(0, 1000, "nats"),
      "A validation loss of more than this above the lowest one of its set gives a warning: a "
      "model that learns its data by heart gets worse at other text; 0: none.");
  KEY(guard.compareWeights, steps(0),
      "Steps between two comparisons of all weights that exist twice: on several ranks, or as a "
      "compute copy beside its master weights. A difference ends the run with exit code 4, because "
      "a machine has damaged them; 0: none.");
  KEY(guard.updateRatio, range(0, 1000),
      "A step whose update of a matrix is more than this part of its weights (L2 norms) gives a "
      "warning, and so does a tensor without a gradient. They are looked at when a save is written "
      "behind the steps; 0: not at all.");
  KEY(guard.deadExpert, steps(0),
      "An expert that gets no token in this many steps in a row gives a warning; 0: none is looked "
      "for.");
}

} // namespace lmc::config::keys
