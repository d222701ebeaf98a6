/* checkpoint_convert.c -- elements of a checkpoint in another float type than they were saved in, so that a bf16 run
 * goes on in fp32 and the other way round. Through fp32, to which each of the three converts exactly, and from there
 * rounded to nearest even, once, by the loops of the optimizer.
 */
#include "parallel/adamw.h"
#include "parallel/checkpoint.h"

#include <string.h>

bool piece_convertible(hkt_type_t to, hkt_type_t from)
{
    return to == from || (hkt_is_float_type(to) && hkt_is_float_type(from));
}

/* At most HKT_LOOP_BLOCK elements. The loops want aligned memory, a file gives any. */
static void convert_block(char *to, hkt_type_t to_type, const char *from, hkt_type_t from_type, size_t count)
{
    float read[HKT_LOOP_BLOCK], wide[HKT_LOOP_BLOCK], narrow[HKT_LOOP_BLOCK];

    memcpy(read, from, count * hkt_type_size(from_type));
    hkt_float_widen(wide, read, from_type, count);
    hkt_float_narrow(narrow, to_type, wide, count);
    memcpy(to, narrow, count * hkt_type_size(to_type));
}

int hkt_convert(void *to, hkt_type_t to_type, const void *from, hkt_type_t from_type, size_t count)
{
    if (!piece_convertible(to_type, from_type) || !hkt_type_size(to_type))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "%s cannot be converted to %s; float32, bfloat16 and float16 can, into one another",
                             hkt_type_name(from_type), hkt_type_name(to_type));
    if (to_type == from_type && count)
        memcpy(to, from, count * hkt_type_size(to_type));
    for (size_t at = 0; at < count && to_type != from_type; at += HKT_LOOP_BLOCK)
        convert_block((char *)to + at * hkt_type_size(to_type), to_type,
                      (const char *)from + at * hkt_type_size(from_type), from_type,
                      count - at < HKT_LOOP_BLOCK ? count - at : HKT_LOOP_BLOCK);
    return HKT_OK;
}
