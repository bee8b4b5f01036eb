#pragma once

#include <string>
#include <vector>

#include "measure.h"
#include "opwright/logger.h"

namespace opwright::cli {

/// Lines as trtexec prints them: "[11/28/2026-18:40:01] [I] text". Warnings and errors go to
/// stderr.
void tell(ILogger::Severity severity, const std::string& line);
void tell_info(const std::string& line = "");
void tell_warning(const std::string& line);
void tell_error(const std::string& line);

/// A number with six digits. It has no exponent, since the patterns of scripts do not expect one.
std::string number_text(double value);

/// The means and the summary of runs, in milliseconds.
struct ReportOptions {
  int average = 10;
  std::vector<double> percentiles = {90, 95, 99};
  double warmup_ms = 0;
  int streams = 1;
};
void report_runs(const Measured& measured, const ReportOptions& options);
/// The runs as trtexec's --exportTimes writes them.
std::string times_json(const std::vector<RunTrace>& runs);

void report_layers(const std::vector<LayerTimes>& layers, int runs);
/// The layers as --exportProfile writes them.
std::string profile_json(const std::vector<LayerTimes>& layers, int runs);

/// The elements in JSON's form, separated by spaces.
std::string values_text(const NpyArray& array);
/// The outputs as --exportOutput writes them.
std::string outputs_json(Runner& runner);
/// "1x3x8x8", or "scalar".
std::string shape_text(const Shape& shape);

}  // namespace opwright::cli
