// One kernel set. Built once per instruction set, with its flags and its SLIPSTREAM_ISA_* names.
#include "kernels.h"

#include "attention.h"
#include "product.h"
#include "sampling.h"

namespace slipstream {

extern const KernelSet SLIPSTREAM_ISA_SYMBOL;

const KernelSet SLIPSTREAM_ISA_SYMBOL = {
    SLIPSTREAM_ISA_NAME, form_of, embed, rms_norm,   write_row, product,
    store_keys,          attend,  merge, move_slots, sample,
};

}  // namespace slipstream
