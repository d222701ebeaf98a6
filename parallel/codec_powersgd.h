/* codec_powersgd.h -- the entry of PowerSGD in the table; included by codec_table.c only. It needs shapes and two
 * reductions, so what it does is in codec_powersgd.c. */
#include "codec.h"

static const struct codec codec_powersgd = {
    .name     = "powersgd",
    .desc     = "factors of low rank of the matrices",
    .option   = {{"rank", CODEC_WHOLE, 1, 64, 4, "of the factors, 1 to 64 (4)"},
                 {"rate", CODEC_REAL, 1, 1e6, 2, "matrices that would shrink less travel as they are (2)"}},
    .feedback = true,
    .linear   = true,
};
