#include "truncate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

namespace slipstream {
namespace {

// Weights further below the largest, 1, are lost in the rounding of their sum.
constexpr double kWeightRange = 45;

// Tokens whose scaled logit is at least -range.
std::vector<Ranked> within(const float* logits, int vocabulary, const Scale& scale, double range) {
  const float least = least_logit(scale, -range);
  std::unique_ptr<int32_t[]> ids(new int32_t[vocabulary]);
  int count = 0;
  for (int32_t id = 0; id < vocabulary; ++id) {
    ids[count] = id;
    count += logits[id] >= least;
  }
  std::vector<Ranked> tokens;
  tokens.reserve(count);
  for (int i = 0; i < count; ++i) {
    const double scaled = scaled_logit(scale, logits[ids[i]]);
    if (scaled >= -range) tokens.push_back({scaled, ids[i]});
  }
  return tokens;
}

double weight_of(const std::vector<Ranked>& tokens) {
  double total = 0;
  for (const Ranked& token : tokens) total += std::exp(token.value);
  return total;
}

double weight_of_all(const float* logits, int vocabulary, const Scale& scale) {
  double total = 0;
  for (int id = 0; id < vocabulary; ++id) {
    const double scaled = scaled_logit(scale, logits[id]);
    if (scaled >= -kWeightRange) total += std::exp(scaled);
  }
  return total;
}

// The last of the best tokens that together do not reach `mass` before it.
Ranked last_within(std::vector<Ranked>& tokens, double mass) {
  const auto ranks_after = [](const Ranked& a, const Ranked& b) { return ranks_before(b, a); };
  std::make_heap(tokens.begin(), tokens.end(), ranks_after);
  Ranked last = tokens.front();
  double sum = 0;
  for (auto end = tokens.end(); end != tokens.begin(); --end) {
    const double weight = std::exp(tokens.front().value);
    sum += weight;
    if (!(sum - weight < mass)) break;
    last = tokens.front();
    std::pop_heap(tokens.begin(), end, ranks_after);
  }
  return last;
}

}  // namespace

Ranked truncate(const float* logits, int vocabulary, const Sampling& sampling, const Scale& scale) {
  const size_t most = sampling.top_k > 0 ? sampling.top_k : vocabulary;
  const bool by_weight = sampling.top_p < 1;
  double total = by_weight && sampling.top_k <= 0 ? weight_of_all(logits, vocabulary, scale) : 0;
  std::vector<Ranked> tokens;
  for (double range : {4.0, 12.0, kNoiseRange}) {  // few tokens are enough, as a rule
    tokens = within(logits, vocabulary, scale, range);
    if (tokens.size() >= most || (total > 0 && weight_of(tokens) >= sampling.top_p * total)) break;
  }
  if (most < tokens.size()) {
    std::nth_element(tokens.begin(), tokens.begin() + most, tokens.end(), ranks_before);
    tokens.resize(most);
  }
  if (!by_weight) return *std::max_element(tokens.begin(), tokens.end(), ranks_before);
  if (sampling.top_k > 0) total = weight_of(tokens);
  return last_within(tokens, sampling.top_p * total);
}

}  // namespace slipstream
