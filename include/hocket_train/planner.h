/* planner.h -- memory and time of a training step, and the search for a layout. A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_PLANNER_H
#define HOCKET_TRAIN_PLANNER_H

#include <hocket.h>
#include <hocket_train/ledger.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a training step of a decoder-only transformer needs in memory and time on a machine, and the search for the best
 * layout. Arithmetic only: no communicator, no state; any thread. Times are those of a model, not of a measurement; docs/planning.md has its formulas, their sources and how far they are from published figures.
 * A field that makes no sense (a size below 1, heads that do not divide hidden) gives HKT_ERR_ARGUMENT from every function. */

typedef struct {
    const char *name;
    int  layers, hidden, heads;
    int  kv_heads;       /* = heads without grouped queries */
    int  ffn;            /* inner size of the MLP */
    int  vocabulary;     /* tokens */
    int  pad;            /* the table is padded to a multiple of this times TP; 1: only to TP */
    int  sequence;       /* tokens of a sample */
    int  positions;      /* rows of a table of learned positions; 0: rotary or ALiBi */
    bool tied;           /* the head is the embedding; with stages each of both ends has a copy */
    bool gated;          /* three matrices in the MLP (SwiGLU), not two */
    bool biased;         /* linear layers and norms have biases */
    bool embedding_norm; /* a norm behind the embedding (BLOOM) */
    bool dropout;        /* masks are kept */
    bool blocked;        /* blocked (flash) attention: nothing of sequence x sequence is kept */
} hkt_plan_model_t;

/* Bytes an element takes, by what it is for. */
typedef struct {
    double parameter, gradient;
    double optimizer;  /* both moments, and the master weight if there is one */
    double activation, mask;
} hkt_plan_bytes_t;
#define HKT_PLAN_BF16 { 2, 4, 12, 2, 1 } /* gradients accumulate in fp32: 6 + 12 / n with a sharded optimizer */
#define HKT_PLAN_FP16 { 2, 2, 12, 2, 1 } /* the 16 bytes of the ZeRO paper */
#define HKT_PLAN_FP32 { 4, 4, 8, 4, 4 }

enum { HKT_PLAN_LINKS = 4, HKT_PLAN_ANY = -1 };

/* A class of links: what joins the devices of an aligned block of `span` ranks. */
typedef struct {
    const char *name;
    int         span;      /* a multiple of the one before; of the last class 0: all devices */
    double      bandwidth; /* bytes/s that every device can send, and receive at the same time, all at once */
    double      latency;   /* seconds of a message */
} hkt_plan_link_t;

enum { HKT_PLAN_POINTS = 12 };

/* Micro-batches of so many tokens on a device were measured to take so many times what the formulas say. */
typedef struct { double tokens, slower; } hkt_plan_point_t;

typedef struct {
    const char     *name;
    double          memory;   /* bytes of a device that a plan may use */
    double          peak;     /* FLOP/s of a device as advertised; for MFU only */
    double          achieved; /* FLOP/s of a large matrix product */
    double          half;     /* least dimension of a product that reaches half of `achieved` */
    double          traffic;  /* bytes/s of device memory, as reached */
    double          launch;   /* seconds lost for every kernel that is started */
    double          host;     /* bytes/s at which optimizer state outside the device is updated, at most `traffic`; 0: no such place */
    int             links;    /* 1 to HKT_PLAN_LINKS, fastest first; devices of link[0] are a node */
    hkt_plan_link_t link[HKT_PLAN_LINKS];
    int              points;  /* measured steps by which computation is corrected, fewest tokens first; 0: as the formulas say */
    hkt_plan_point_t point[HKT_PLAN_POINTS];
    double           update;  /* the same for the optimizer; 0: 1 */
} hkt_plan_machine_t;

/* Presets. Index from 0 gives the names, then NULL. An unknown name is refused with the list of them. */
HKT_API const char *hkt_plan_model_name(int index);
HKT_API const char *hkt_plan_machine_name(int index);
HKT_API int         hkt_plan_model(hkt_plan_model_t *model, const char *name);
HKT_API int         hkt_plan_machine(hkt_plan_machine_t *machine, const char *name);

enum {
    HKT_PLAN_TP_ANYWHERE   = 1, /* lets tensor parallelism leave the node */
    HKT_PLAN_ZERO_ANYWHERE = 2, /* lets ZeRO 2 and 3 run under a pipeline, reducing for every micro-batch */
    HKT_PLAN_NO_OVERLAP    = 4  /* gradients and parameters travel while nothing is computed */
};

typedef struct {
    hkt_plan_model_t   model;
    hkt_plan_machine_t machine;
    hkt_plan_bytes_t   bytes;
    int                world;        /* devices */
    int                global_batch; /* sequences of a step */
    unsigned           options;      /* HKT_PLAN_TP_ANYWHERE ... */
} hkt_plan_job_t;

typedef enum { HKT_RECOMPUTE_NONE = 0, HKT_RECOMPUTE_SELECTIVE, HKT_RECOMPUTE_FULL, HKT_RECOMPUTES } hkt_recompute_t;
HKT_API const char *hkt_recompute_name(int recompute); /* "none", "selective", "full"; "?" */

/* Ranks are laid out tp-cp-dp-pp, tp the fastest. As the limits of a search, a field may be HKT_PLAN_ANY. */
typedef struct {
    int tp, cp, pp, dp;
    int schedule;          /* hkt_pipeline_kind_t; a search for any leaves GPipe out, which 1F1B does in less memory */
    int chunks;            /* of layers on a stage; interleaved: 2 or more, else 1 */
    int head_layers;       /* so many layers' place is taken by the head; a search for any tries up to what it costs */
    int zero;              /* what the dp x cp devices share: 0 nothing, 1 optimizer state, 2 gradients, 3 parameters, too */
    int micro_batch;       /* sequences */
    int recompute;         /* hkt_recompute_t */
    int sequence_parallel; /* 0, 1 */
    int offload;           /* 1: the optimizer's state lives outside the device */
} hkt_plan_layout_t;
#define HKT_PLAN_LAYOUT_ANY { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 }

/* Elements of the whole model, nothing padded, nothing twice. NaN for a model that makes no sense. */
HKT_API double hkt_plan_parameters(const hkt_plan_model_t *model);

/* FLOPs of a step of so many sequences: a product of m x k by k x n counts 2mnk, attention is counted without its mask, and
 * recomputation comes on top (HKT_RECOMPUTE_NONE: those of the model). */
HKT_API double hkt_plan_flops(const hkt_plan_model_t *model, double sequences, int recompute);

/* Model state of one of n devices that share `parameters` at a ZeRO stage, bytes, and the elements that each of them sends for
 * a step of m micro-batches (Rajbhandari et al. 2020; gradients of stages 2 and 3 are reduced for every micro-batch). */
HKT_API double hkt_plan_states(const hkt_plan_bytes_t *bytes, double parameters, int n, int zero);
HKT_API double hkt_plan_volume(double parameters, int n, int zero, int m);

/* Layers of a stage; 0 where the layout is not possible. The rest of (layers + head_layers) / (pp chunks) goes to the middle
 * first, as the ends also have embedding and head: 70 layers on 12 stages are 5, 10 x 6, 5; then the last stage gives
 * head_layers back. */
HKT_API int hkt_plan_stage_layers(const hkt_plan_model_t *model, const hkt_plan_layout_t *layout, int stage);

/* What stands against a layout: the number of rules it breaks, its memory among them, 0 for none. All of them, with
 * the values that would be valid, go to `text` (`size` bytes, cut where they end; NULL with 0 is allowed). */
HKT_API int hkt_plan_check(char *text, size_t size, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);

/* One device of a stage, at its peak. */
typedef struct {
    int    layers;
    double parameters;               /* elements on it, before ZeRO shards them */
    double in_flight;                /* micro-batches x chunks whose activations are kept */
    double bytes[HKT_BYTES_CLASSES]; /* HKT_BYTES_OTHER: what lives within one layer's backward pass */
    double total;                    /* of them */
    double outside;                  /* bytes offloaded */
} hkt_plan_stage_t;

/* Fills layout->pp stages. The layout must break no rule but that of memory, else HKT_ERR_ARGUMENT with what it breaks. */
HKT_API int hkt_plan_memory(hkt_plan_stage_t *stage, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);

/* Where the seconds of a step go, on the device of the slowest stage. */
typedef enum {
    HKT_PLAN_PRODUCTS = 0, /* matrix products, recomputed ones included */
    HKT_PLAN_TRAFFIC,      /* everything else that reads and writes activations and gradients */
    HKT_PLAN_LAUNCH,       /* starting kernels */
    HKT_PLAN_TP, HKT_PLAN_CP, HKT_PLAN_PP, HKT_PLAN_DP, /* communication that nothing hides; DP: embeddings, too */
    HKT_PLAN_OPTIMIZER,
    HKT_PLAN_BUBBLE,       /* waiting for other stages */
    HKT_PLAN_PARTS
} hkt_plan_part_t;
HKT_API const char *hkt_plan_part_name(int part); /* "products"; "?" */

typedef struct {
    double step;                  /* seconds, the sum of the parts */
    double part[HKT_PLAN_PARTS];
    double hidden;                /* seconds of communication behind computation */
    double sent[HKT_PLAN_PARTS];  /* bytes that the device sends for TP, CP, PP, DP */
    int    link[HKT_PLAN_PARTS];  /* slowest class of links that such a group crosses; -1: a group of one */
    double flops, hardware_flops; /* FLOP/s of a device, without and with what is recomputed */
    double tokens;                /* tokens/s of all devices */
    int    micro_batches;         /* of a step, on one device */
    int    slowest;               /* stage */
} hkt_plan_time_t;

HKT_API int hkt_plan_time(hkt_plan_time_t *time, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);

/* The best plan of one choice of tp, cp, pp, dp, or why there is none. */
typedef struct {
    hkt_plan_layout_t layout;         /* found: of the best plan; else only tp, cp, pp, dp */
    bool              found;
    hkt_plan_time_t   time;           /* found */
    double            memory;         /* bytes of its fullest stage; not found: the least that was seen, 0: none was */
    size_t            refused, over;  /* variants that break a rule, or only the memory's */
    size_t            timed, skipped; /* variants whose time was found, or that cannot be better than one of them */
    char              reason[320];    /* not found: the rules broken by the family, or by the plan that came nearest */
} hkt_plan_family_t;

/* Goes through all layouts within `limits` (NULL: all) and gives the best plan of every family: the plans by their time, then
 * the families without any. What is found is within the memory and breaks no rule. Free with hkt_plan_search_free(). */
HKT_API int hkt_plan_search(hkt_plan_family_t **family, size_t *count, const hkt_plan_job_t *job,
                            const hkt_plan_layout_t *limits);
HKT_API void hkt_plan_search_free(hkt_plan_family_t *family); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_PLANNER_H */
