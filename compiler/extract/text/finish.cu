// The end of an extracted program.

// Prints the result of the check and, for a bench, the time of each launch and of all together,
// beside the predictions. Returns the exit code.
static int finish(const host::Difference &difference, host::Task task) {
  const int code = difference.report();
  if (task == host::Task::Hold)
    std::printf("held: %.4f ms\n", host::millisecondsHeld(4, launchAll));
  if (task != host::Task::Bench)
    return code;
  double predicted = 0;
  for (double seconds : launchPredictions)
    predicted += seconds;
  host::bench("bench:", predicted, kBytes, kFlops, launchAll);
  for (size_t i = 0; kLaunches > 1 && i < kLaunches; ++i)
    host::bench((std::string("  ") + launchNames[i]).c_str(), launchPredictions[i], 0, 0,
                [&] { launch(i); });
  return code;
}

