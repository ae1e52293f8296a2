// The operations of a program: which tasks a step gives, and the kernel that does one of them.
#pragma once

#include <algorithm>
#include <cstring>

#include "program.h"

namespace slipstream {

// Row operations are cut so that every thread finds two tasks, but into no more than that pays.
class RowRanges {
 public:
  RowRanges(const StepState& state, int rows)
      : rows_(rows), of_task_(std::clamp(rows / (2 * state.threads), 1, kMostOfTask)) {}
  int tasks() const { return (rows_ + of_task_ - 1) / of_task_; }
  template <typename Function>
  void run(int task, Function row) const {
    const int last = std::min(rows_, (task + 1) * of_task_);
    for (int i = task * of_task_; i < last; ++i) row(i);
  }

 private:
  static constexpr int kMostOfTask = 4;
  int rows_;
  int of_task_;
};

class Embed : public Operation {
 public:
  Embed(const Matrix& table, const RowBuffer& out) : table_(table), out_(out) {}
  int tasks(const StepState& state) const override {
    return RowRanges(state, state.step.rows).tasks();
  }
  void run(const StepState& state, int task) const override {
    RowRanges(state, state.step.rows).run(task, [&](int row) {
      float* out = out_.view().floats + size_t(row) * out_.width();
      state.kernels->embed(table_, state.step.tokens[row], out, out_.width());
    });
  }

 private:
  Matrix table_;
  const RowBuffer& out_;
};

class Norm : public Operation {
 public:
  Norm(const RowBuffer& x, const float* weight, int width, float eps, Domain domain,
       const RowBuffer& out)
      : x_(x), weight_(weight), width_(width), eps_(eps), domain_(domain), out_(out) {}
  int tasks(const StepState& state) const override { return RowRanges(state, rows(state)).tasks(); }
  void run(const StepState& state, int task) const override {
    RowRanges(state, rows(state)).run(task, [&](int row) {
      const int from = domain_ == Domain::kLogits ? state.step.logit_rows[row] : row;
      const float* x = x_.view().floats + size_t(from) * x_.width();
      state.kernels->rms_norm(x, width_, weight_, eps_, out_.view(), row);
    });
  }

 private:
  int rows(const StepState& state) const {
    return domain_ == Domain::kLogits ? state.step.logit_count : state.step.rows;
  }
  const RowBuffer& x_;
  const float* weight_;
  int width_;  // without the padding of x
  float eps_;
  Domain domain_;
  const RowBuffer& out_;
};

class Convert : public Operation {
 public:
  Convert(const RowBuffer& x, const RowBuffer& out) : x_(x), out_(out) {}
  int tasks(const StepState& state) const override {
    return RowRanges(state, state.step.rows).tasks();
  }
  void run(const StepState& state, int task) const override {
    RowRanges(state, state.step.rows).run(task, [&](int row) {
      const float* x = x_.view().floats + size_t(row) * x_.width();
      state.kernels->convert(x, x_.width(), out_.view(), row);
    });
  }

 private:
  const RowBuffer& x_;
  const RowBuffer& out_;
};

// Rounds rows to bfloat16 and keeps them by slot.
class Keep : public Operation {
 public:
  Keep(const SlotRows& kept, int part, const RowBuffer& x) : kept_(kept), part_(part), x_(x) {}
  int tasks(const StepState& state) const override {
    return RowRanges(state, state.step.rows).tasks();
  }
  void run(const StepState& state, int task) const override {
    RowRanges(state, state.step.rows).run(task, [&](int row) {
      Rows out{Form::kBfloat16, kept_.width, nullptr, nullptr, nullptr, nullptr, nullptr};
      out.halves = kept_.at(state.step.slots[row], part_);
      const float* x = x_.view().floats + size_t(row) * x_.width();
      state.kernels->convert(x, x_.width(), out, 0);
    });
  }

 private:
  SlotRows kept_;
  int part_;
  const RowBuffer& x_;
};

class Gather : public Operation {
 public:
  Gather(const SlotRows& kept, int part, const RowBuffer& out, int column)
      : kept_(kept), part_(part), out_(out), column_(column) {}
  int tasks(const StepState& state) const override {
    return RowRanges(state, state.step.rows).tasks();
  }
  void run(const StepState& state, int task) const override {
    RowRanges(state, state.step.rows).run(task, [&](int row) {
      const uint16_t* from = kept_.at(state.step.sources[row], part_);
      float* out = out_.view().floats + size_t(row) * out_.width() + column_;
      for (int i = 0; i < kept_.values; ++i) {
        const uint32_t bits = uint32_t(from[i]) << 16;
        std::memcpy(out + i, &bits, sizeof(bits));
      }
    });
  }

 private:
  SlotRows kept_;
  int part_;
  const RowBuffer& out_;
  int column_;
};

class ProductOperation : public Operation {
 public:
  ProductOperation(const Matrix& matrix, const RowBuffer& in, Finish finish,
                   const RowBuffer* residual, Domain domain, const RowBuffer& out)
      : matrix_(matrix),
        in_(in),
        finish_(finish),
        residual_(residual),
        domain_(domain),
        out_(out) {}

  int tasks(const StepState& state) const override { return columns(state) * row_tasks(state); }

  void run(const StepState& state, int task) const override {
    const int panels = matrix_.outputs / kPanel;
    const int first_panel = task / row_tasks(state) * panels_of_task(state);
    const int first_row = task % row_tasks(state) * kRowsOfTask;
    Product product{matrix_, in_.view(), finish_, nullptr, nullptr, 0, {}};
    if (finish_ == Finish::kSwiglu) {
      product.rows_out = out_.view();
    } else {
      product.out = out_.view().floats;
      product.out_stride = out_.width();
      if (residual_) product.residual = residual_->view().floats;
    }
    state.kernels->product(product, first_panel,
                           std::min(panels, first_panel + panels_of_task(state)), first_row,
                           std::min(rows(state), first_row + kRowsOfTask));
  }

 private:
  // Rows that fit the second cache beside a panel; a multiple of kTileRows.
  static constexpr int kRowsOfTask = 256;
  // Claims per thread: enough that a thread which comes late or loses its core leaves little.
  static constexpr int kTasksOfThread = 8;

  int rows(const StepState& state) const {
    return domain_ == Domain::kLogits ? state.step.logit_count : state.step.rows;
  }
  int row_tasks(const StepState& state) const {
    return (rows(state) + kRowsOfTask - 1) / kRowsOfTask;
  }
  int panels_of_task(const StepState& state) const {
    const int together = finish_ == Finish::kSwiglu ? 4 : 2;
    const int wanted = matrix_.outputs / kPanel / (state.threads * kTasksOfThread);
    return std::max(together, wanted / together * together);
  }
  int columns(const StepState& state) const {
    const int panels = matrix_.outputs / kPanel;
    return (panels + panels_of_task(state) - 1) / panels_of_task(state);
  }

  Matrix matrix_;
  const RowBuffer& in_;
  Finish finish_;
  const RowBuffer* residual_;
  Domain domain_;
  const RowBuffer& out_;
};

// The three parts of attention: store keys and values, attend piece by piece, merge the pieces.
class AttentionOperation : public Operation {
 public:
  AttentionOperation(const Attention& attention, const RowBuffer& qkv, const RowBuffer& out)
      : attention_(attention), qkv_(qkv), out_(out) {}

 protected:
  Attention with_rows(const StepState& state) const {
    Attention attention = attention_;
    attention.qkv = qkv_.view().floats;
    attention.qkv_stride = qkv_.width();
    attention.partials = state.partials;
    attention.segments = state.segments;
    attention.out = out_.view();
    return attention;
  }
  const Attention attention_;

 private:
  const RowBuffer& qkv_;
  const RowBuffer& out_;
};

class StoreKeys : public AttentionOperation {
 public:
  using AttentionOperation::AttentionOperation;
  int tasks(const StepState& state) const override {
    return RowRanges(state, state.step.rows).tasks();
  }
  void run(const StepState& state, int task) const override {
    const Attention attention = with_rows(state);
    RowRanges(state, state.step.rows).run(task, [&](int row) {
      state.kernels->store_keys(attention, state.step, row);
    });
  }
};

class Attend : public AttentionOperation {
 public:
  using AttentionOperation::AttentionOperation;
  int tasks(const StepState& state) const override {
    return int(state.pieces.size()) * attention_.cache.kv_heads * parts(state);
  }
  void run(const StepState& state, int task) const override {
    const int part = task % parts(state), head = task / parts(state) % attention_.cache.kv_heads;
    const StepState::Piece& piece = state.pieces[task / parts(state) / attention_.cache.kv_heads];
    const Tile& tile = state.tiles[piece.tile];
    const int rows = tile.last + 1 - tile.first;
    const Tile of_part{tile.first + rows * part / parts(state),
                       tile.first + rows * (part + 1) / parts(state) - 1};
    if (of_part.first <= of_part.last)
      state.kernels->attend(with_rows(state), state.step, of_part, head, piece.segment);
  }

 private:
  // Tiles are halved where there are too few for every thread to find as much as the others.
  int parts(const StepState& state) const {
    const int whole = int(state.pieces.size()) * attention_.cache.kv_heads;
    return state.step.rows > 1 && whole < 4 * state.threads ? 2 : 1;
  }
};

class Merge : public AttentionOperation {
 public:
  using AttentionOperation::AttentionOperation;
  int tasks(const StepState& state) const override {
    return RowRanges(state, state.step.rows).tasks();
  }
  void run(const StepState& state, int task) const override {
    const Attention attention = with_rows(state);
    RowRanges(state, state.step.rows).run(task, [&](int row) {
      state.kernels->merge(attention, state.step, row);
    });
  }
};

}  // namespace slipstream
