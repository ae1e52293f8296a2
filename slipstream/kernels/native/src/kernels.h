// What a kernel set offers. Compiled once per instruction set; chosen at run time.
//
// Every function obeys the row contract: the bits of an output row depend only on that row's own
// inputs and, in attention, on the keys and values of its own context in logical order. How rows
// are spread over calls, their neighbours and the thread that computes them change nothing.
//
// Functions of this header are inlined always: a copy of one, compiled for a greater instruction
// set, could otherwise be linked into the code for lesser machines.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slipstream {

constexpr int kGroup = 32;  // inputs that share a scale; outputs are padded to as many
constexpr int kPanel = 16;  // outputs packed side by side
constexpr int kBlock = 32;  // positions that attention treats together; slots of a page
constexpr int kMaxHeadDim = 256;

// How a matrix is packed.
enum class Format : int {
  kBfloat16 = 0,  // bfloat16
  kInt8 = 1,      // groups of signed bytes q: value = scale * q
  kInt4 = 2,      // groups of nibbles q: value = scale * (q - 8)
  kInt4Min = 3,   // groups of nibbles q: value = scale * q + minimum
};

// How the rows that a product reads are written.
enum class Form : int {
  kFloat32 = 0,
  kBfloat16 = 1,  // float32 values in groups rounded to bfloat16
  kInt8 = 2,      // groups of signed bytes with one scale and one outlier each, for nibbles
  kInt16 = 3,     // groups of signed 16-bit numbers with one scale each, for bytes; in quads of
                  // inputs 0, 2, 1, 3
};

// Weights [outputs, inputs], in panels of kPanel outputs and in each panel groups of kGroup inputs.
// A panel's group holds, one after the other:
//   bfloat16: [16 pairs of inputs][kPanel outputs][2 inputs]
//   int8:     [8 quads of inputs][kPanel outputs][4 inputs] bytes, then half scales [kPanel]
//   int4:     [4][kPanel outputs][4 inputs] bytes, vector v holding quad v in its low and quad v +
//   4
//             in its high nibbles; then half scales [kPanel]; then half minimums [kPanel] if any
// Inputs are padded with weights of zero to a whole group, outputs to a multiple of 2 * kPanel, and
// to one of 4 * kPanel for a swiglu product, whose outputs take turns: a panel of gates, then the
// panel of the ups that belong to them.
struct Matrix {
  Format format;
  int outputs;          // padded
  int inputs;           // padded
  const uint8_t* data;  // 64-byte aligned
  const float* bias;    // [outputs], or null
  [[gnu::always_inline]] size_t group_bytes() const {
    switch (format) {
      case Format::kBfloat16: return kGroup * kPanel * 2;
      case Format::kInt8: return kGroup * kPanel + 2 * kPanel;
      case Format::kInt4: return kGroup * kPanel / 2 + 2 * kPanel;
      default: return kGroup * kPanel / 2 + 4 * kPanel;
    }
  }
  [[gnu::always_inline]] size_t panel_bytes() const { return inputs / kGroup * group_bytes(); }
};

// What belongs to one group of a row of integers. In int8 the input of largest magnitude is kept
// apart as a float, and its byte is zero: one outlier would leave the others few of the 8 bits. On
// the default model that makes the error of the logits as small as two more bits would.
struct RowGroup {
  float scale;
  // Of int8 only:
  float sum;        // of all inputs as written
  float outlier;    // divided by the power of two that its weights are multiplied by; see `nibble`
  int32_t quad_at;  // bytes to the quads, in a group of int4, that hold the outlier's weights
  int32_t nibble;   // the bits of such a quad that are its weight, never the highest
};

// Rows written in one of the forms; `width` is a multiple of kGroup, padded with zeros.
struct Rows {
  Form form;
  int width;
  float* floats;     // [rows, width]          if float32
  uint16_t* halves;  // [rows, width]          if bfloat16
  int16_t* shorts;   // [rows, width]          if int16
  int8_t* bytes;     // [rows, width]          if int8
  RowGroup* groups;  // [rows, width / kGroup] if int8 or int16
};

// What a product does with its results.
enum class Finish : int {
  kStore = 0,   // out = product + bias
  kAdd = 1,     // out = product + bias + residual
  kSwiglu = 2,  // rows_out = silu(gate) * up
};

struct Product {
  Matrix matrix;
  Rows in;
  Finish finish;
  float* out;             // [rows, out_stride] unless swiglu
  const float* residual;  // [rows, out_stride] if add
  int out_stride;
  Rows rows_out;  // if swiglu: [rows, outputs / 2]
};

// The rows of one step; see StepBatch in step_batch.py for each array.
struct Step {
  int rows;
  int requests;
  int page_table_width;
  int tail_width;
  int logit_count;
  const int32_t* tokens;       // [rows]
  const int32_t* positions;    // [rows]
  const int32_t* slots;        // [rows]
  const int32_t* angles;       // [rows] rotary positions
  const int32_t* sources;      // [rows]
  const int32_t* request_of;   // [rows]
  const uint8_t* follows;      // [rows]
  const int32_t* page_tables;  // [requests, page_table_width]
  const int32_t* tail_starts;  // [requests]
  const int32_t* tail_slots;   // [rows, tail_width]
  const int32_t* logit_rows;   // [logit_count]
};

enum class KVType : int { kBfloat16 = 0, kInt8 = 1 };

// Keys and values of all layers. A block is one page of one head in one layer: keys
// [head_dim][kBlock], values [kBlock][head_dim], and for int8 then scales of the keys [kBlock] and
// of the values [kBlock], float32. Blocks lie as [layer][page][kv_head].
struct Cache {
  KVType type;
  int layers;
  int pages;
  int kv_heads;
  int head_dim;  // a multiple of 16, at most kMaxHeadDim
  uint8_t* data;
  [[gnu::always_inline]] size_t block_bytes() const {
    size_t values = size_t(2) * kBlock * head_dim;
    return type == KVType::kBfloat16 ? 2 * values : values + 2 * kBlock * sizeof(float);
  }
  [[gnu::always_inline]] uint8_t* block(int layer, int page, int head) const {
    return data + ((size_t(layer) * pages + page) * kv_heads + head) * block_bytes();
  }
};

// Activations kept by slot, in bfloat16: each slot has `parts` rows of `values` values.
struct SlotRows {
  int parts;
  int values;
  int width;  // values padded to whole groups
  uint16_t* data;
  [[gnu::always_inline]] uint16_t* at(int slot, int part) const {
    return data + (size_t(slot) * parts + part) * width;
  }
};

// Attention of one layer. Contexts are cut into segments of kSegment positions; each segment of
// each row and head gives a maximum, a sum and a weighted sum of values, merged in order
// afterwards.
constexpr int kSegment = 256;

struct Attention {
  int heads;
  int layer;
  Cache cache;
  const float* query_norm;  // [head_dim], or null
  const float* key_norm;
  float eps;
  const float* cosines;  // [positions, head_dim / 2]
  const float* sines;
  float* qkv;  // [rows, (heads + 2 * kv_heads) * head_dim]; queries are rotated in place
  int qkv_stride;
  float* partials;  // [rows, heads, segments, head_dim + 2]: weighted values, maximum, sum
  int segments;     // of the longest context of the step
  Rows out;         // [rows, heads * head_dim]
};

// Rows [first, last] of one request, at most kTileRows: what one thread attends for at a time.
constexpr int kTileRows = 16;

struct Tile {
  int first;
  int last;
};

struct Sampling {
  double temperature;  // 0 is argmax
  double top_p;
  double min_p;
  uint64_t seed;
  int32_t top_k;     // 0 is no limit
  int32_t position;  // where the token would stand
};

// The most tokens that can be asked of `rank`.
constexpr int kMostRanked = 256;

struct KernelSet {
  const char* name;

  // The form in which products with such a matrix read their rows.
  Form (*form_of)(Format format);

  // Rows of a packed embedding, as floats [width].
  void (*embed)(const Matrix& table, int token, float* out, int width);

  // RMS norm of one row of `width` floats, written as row `row` of `out`. (Zhang & Sennrich, 2019)
  void (*rms_norm)(const float* x, int width, const float* weight, float eps, const Rows& out,
                   int row);

  // One row of floats in the form of `out`.
  void (*convert)(const float* x, int width, const Rows& out, int row);

  // Outputs of panels [first_panel, last_panel) for rows [first_row, last_row). Panels are cut at
  // multiples of 4 for swiglu, else of 2; rows at multiples of kTileRows. Memory of the rows is
  // there up to a multiple of kTileRows; what is computed beyond last_row is never stored.
  void (*product)(const Product& product, int first_panel, int last_panel, int first_row,
                  int last_row);

  // Normalises (if asked) and rotates queries and keys of one row; stores K and V in its slot.
  void (*store_keys)(const Attention& attention, const Step& step, int row);

  // One tile's partial results for one key head and one segment of the context.
  void (*attend)(const Attention& attention, const Step& step, const Tile& tile, int kv_head,
                 int segment);

  // Merges one row's segments in order and writes the row in the form of `out`.
  void (*merge)(const Attention& attention, const Step& step, int row);

  // Copies one layer's K and V of slots; all reads come before all writes.
  void (*move_slots)(const Cache& cache, int layer, const int32_t* sources, const int32_t* targets,
                     int count);

  // The token that one row of logits emits; see sampling_rows.py for the definition.
  int32_t (*sample)(const float* logits, int vocabulary, const Sampling& sampling);

  // The `count` likeliest results of `sample`, as a drafter with these logits sees it, best first;
  // see Kernels.rank in interface.py. `ids` are the tokens that the logits stand for; what is left
  // over is token -1.
  void (*rank)(const float* logits, int vocabulary, const int32_t* ids, const Sampling& sampling,
               int count, int32_t* tokens, float* logprobs);
};

// Null where this build or this machine has no such kernels.
const KernelSet* kernel_set(const char* isa);

}  // namespace slipstream
