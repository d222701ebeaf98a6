/* data_tool.c -- hkt-data: text to token data and back, tokenizers, and (data_model.c) checkpoints and safetensors.
 * Flags carry the names of Megatron-LM's tools where those have them.
 */
#include "data_tool.h"

#include "tools/flags.h"
#include "indexed.h"
#include "json.h"
#include "mapping.h"
#include "tokenizer.h"

#include <errno.h>
#include <hocket_train.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum documents { A_FILE, A_LINE, A_PARAGRAPH };

struct data_settings settings = {.vocabulary = 0, .step = -1, .document = -1};

static const struct flag rows[] = {
    {'o', "output-prefix", FLAG_TEXT, &settings.output, 0, 0, "NAME",
     "What is written: the beginning of the names of .bin and .idx; a folder (train-tokenizer, import); a file "
     "(export)."},
    {0, "vocab-file", FLAG_TEXT, &settings.vocabulary_file, 0, 0, "FILE",
     "vocab.json of GPT-2's form. With --merge-file; without both, tokens are bytes."},
    {0, "merge-file", FLAG_TEXT, &settings.merge_file, 0, 0, "FILE", "merges.txt of GPT-2's form."},
    {0, "document", FLAG_WORD, &settings.documents, 0, 0, "file|line|paragraph",
     "What a document is in plain text; paragraphs are parted by empty lines."},
    {0, "json-key", FLAG_TEXT, &settings.json_key, 0, 0, "KEY",
     "The files have a JSON object a line, and this key's string is a document."},
    {0, "append-eod", FLAG_ON, &settings.append_eod, 0, 0, NULL, "Ends every document with <|endoftext|>."},
    {0, "vocab-size", FLAG_INTEGER, &settings.vocabulary, 1, 1 << 30, "N",
     "Tokens to learn (train-tokenizer); what verify holds tokens against; the vocabulary without padding (export)."},
    {0, "index", FLAG_INTEGER, &settings.document, 0, 1e15, "I", "print: only sequence I, with its tokens."},
    {0, "step", FLAG_INTEGER, &settings.step, 0, 1e15, "N", "checkpoint, export: that of step N, not the newest."},
    {0, "num-attention-heads", FLAG_INTEGER, &settings.heads, 1, 1 << 20, "N",
     "export, import: heads, where neither the checkpoint nor the rule of GPT-2 (width / 64) knows."},
};

/* ---- text */

struct text {
    const char *at;
    size_t      size;
};

static int text_open(struct text *text, const char *path)
{
    struct mapping file;
    const int      rc = mapping_open(&file, path);

    if (rc < 0)
        return rc;
    *text = (struct text){(const char *)file.at, file.size};
    return HKT_OK;
}

static void text_close(struct text *text)
{
    mapping_close(&(struct mapping){(const unsigned char *)text->at, text->size});
}

/* Bytes of the document that text begins with, and *next: where the next one begins. */
static size_t document_size(struct text text, enum documents kind, size_t *next)
{
    const char *end = NULL;

    if (kind == A_LINE)
        end = memchr(text.at, '\n', text.size);
    else if (kind == A_PARAGRAPH)
        end = memmem(text.at, text.size, "\n\n", 2);
    *next = end ? (size_t)(end - text.at) + 1 : text.size;
    while (end && kind == A_PARAGRAPH && *next < text.size && text.at[*next] == '\n')
        ++*next;
    return end && kind == A_LINE ? (size_t)(end - text.at) : end ? (size_t)(end - text.at) + 1 : text.size;
}

/* ---- tokenize */

struct work {
    struct tokenizer      *tokenizer;
    struct indexed_writer *writer;
    uint64_t               bytes, tokens, documents;
};

static int open_tokenizer(struct tokenizer **tokenizer)
{
    if (!settings.vocabulary_file != !settings.merge_file)
        return hkt_error_set(HKT_ERR_ARGUMENT, "--vocab-file and --merge-file go together");
    return settings.vocabulary_file ? tokenizer_load(tokenizer, settings.vocabulary_file, settings.merge_file)
                                    : tokenizer_bytes(tokenizer);
}

static int add_document(struct work *w, const char *text, size_t bytes)
{
    const int32_t end = tokenizer_end(w->tokenizer);
    int32_t      *tokens;
    size_t        count;
    int           rc = tokenizer_encode(&tokens, &count, w->tokenizer, text, bytes); /* with room for one more */

    if (rc < 0)
        return rc;
    if (settings.append_eod)
        tokens[count++] = end;
    rc = count ? indexed_add(w->writer, tokens, count) : HKT_OK;
    if (rc == HKT_OK && count)
        rc = indexed_end_document(w->writer);
    free(tokens);
    w->bytes += bytes;
    w->tokens += count;
    w->documents += count > 0;
    return rc;
}

/* The string of --json-key in an object of one line. */
static int add_json(struct work *w, const char *line, size_t size)
{
    struct json j     = json_text(line, size);
    char       *room  = malloc(size + 1);
    size_t      n     = 0;
    bool        found = false;
    int         rc    = HKT_OK;

    if (!room)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for a line of %zu bytes", size);
    json_enter(&j, '{');
    while (json_more(&j, '}') && json_key(&j, room, size + 1, &n)) {
        const bool wanted = !found && strcmp(room, settings.json_key) == 0;

        if (!(wanted ? json_string(&j, room, size + 1, &n) : json_skip(&j)))
            break;
        if (wanted)
            rc = add_document(w, room, n);
        found |= wanted;
        if (rc < 0)
            break;
    }
    free(room);
    if (rc == HKT_OK && (!json_done(&j) || !found))
        rc = hkt_error_set(HKT_ERR_ARGUMENT, "%s at byte %zu of the line", j.wrong ? j.wrong : "the key is missing",
                           (size_t)(j.at - j.text));
    return rc;
}

static int add_file(struct work *w, const char *path)
{
    const enum documents kind = settings.json_key ? A_LINE : (enum documents)settings.documents;
    struct text          text;
    uint64_t             number = 0;
    int                  rc     = text_open(&text, path);

    if (rc < 0)
        return rc;
    for (size_t at = 0, next; at < text.size && rc == HKT_OK; at += next) {
        const struct text rest = {text.at + at, text.size - at};
        const size_t      n    = document_size(rest, kind, &next);

        number++; /* from 1, as lines are */
        if (!settings.json_key)
            rc = add_document(w, rest.at, n);
        else if (n)
            rc = add_json(w, rest.at, n);
    }
    if (rc < 0) {
        char why[800];

        snprintf(why, sizeof(why), "%s", hkt_last_error());
        hkt_error_set(rc, "%s, %s %" PRIu64 ": %s", path, settings.json_key ? "line" : "document", number, why);
    }
    text_close(&text);
    return rc;
}

static int tokenize_all(struct work *w, char **words, int count)
{
    int rc = open_tokenizer(&w->tokenizer);

    if (rc == HKT_OK && settings.append_eod && tokenizer_end(w->tokenizer) < 0)
        rc = hkt_error_set(HKT_ERR_ARGUMENT, "%s has no token %s to append", settings.vocabulary_file, TOKENIZER_END);
    if (rc == HKT_OK)
        rc = indexed_create(&w->writer, settings.output, token_code_for(tokenizer_size(w->tokenizer)));
    for (int i = 0; i < count && rc == HKT_OK; i++)
        rc = add_file(w, words[i]);
    if (rc < 0)
        indexed_abandon(w->writer);
    else
        rc = indexed_finish(w->writer);
    return rc;
}

static int tokenize(char **words, int count)
{
    struct work w  = {0};
    const int   rc = tokenize_all(&w, words, count);

    if (rc == HKT_OK)
        printf("%s.bin: %" PRIu64 " documents, %" PRIu64 " tokens of %zu from %" PRIu64 " bytes\n", settings.output,
               w.documents, w.tokens, tokenizer_size(w.tokenizer), w.bytes);
    tokenizer_free(w.tokenizer);
    return rc;
}

/* ---- train-tokenizer */

static int train_tokenizer(char **words, int count)
{
    struct tokenizer *t    = NULL;
    char             *all  = NULL;
    size_t            size = 0;
    int               rc   = HKT_OK;

    if (settings.vocabulary < 257)
        return hkt_error_set(HKT_ERR_ARGUMENT, "--vocab-size says how many tokens to learn, 257 or more");
    for (int i = 0; i < count && rc == HKT_OK; i++) {
        struct text text;
        char       *more;

        if ((rc = text_open(&text, words[i])) < 0)
            break;
        more = realloc(all, size + text.size + 1);
        if (more) {
            all = more;
            memcpy(all + size, text.at ? text.at : "", text.size);
            size += text.size;
        } else {
            rc = hkt_error_set(HKT_ERR_MEMORY, "no memory for %zu bytes of text", size + text.size);
        }
        text_close(&text);
    }
    if (rc == HKT_OK)
        rc = tokenizer_train(&t, all ? all : "", size, (size_t)settings.vocabulary);
    if (rc == HKT_OK)
        rc = tokenizer_save(t, settings.output);
    if (rc == HKT_OK)
        printf("%s: vocab.json and merges.txt of %zu tokens from %zu bytes\n", settings.output, tokenizer_size(t),
               size);
    free(all);
    tokenizer_free(t);
    return rc;
}

/* ---- print, verify, merge */

static int print_sequence(const struct indexed *x, const struct tokenizer *t, size_t sequence)
{
    const size_t n      = indexed_length(x, sequence);
    int32_t     *tokens = malloc((n + 1) * sizeof(*tokens));
    char        *text   = NULL;
    size_t       bytes  = 0;
    int          rc     = HKT_OK;

    if (!tokens)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for %zu tokens", n);
    indexed_get(tokens, x, sequence, 0, n);
    if (t)
        rc = tokenizer_decode(&text, &bytes, t, tokens, n);
    if (rc == HKT_OK && t)
        fwrite(text, 1, bytes, stdout);
    for (size_t i = 0; i < n && rc == HKT_OK && !t; i++)
        printf("%" PRId32 "%c", tokens[i], i + 1 < n ? ' ' : '\n');
    free(text);
    free(tokens);
    return rc;
}

static int print_open(const struct indexed *x, const char *prefix)
{
    struct tokenizer *t  = NULL;
    int               rc = HKT_OK;

    if (settings.document < 0) {
        printf("%s: %zu documents, %zu sequences, %" PRIu64 " tokens of %s, index %016" PRIx64 "\n", prefix,
               indexed_documents(x), indexed_sequences(x), indexed_tokens(x), token_name(indexed_code(x)),
               indexed_checksum(x));
        return HKT_OK;
    }
    if ((size_t)settings.document >= indexed_sequences(x))
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s has no sequence %ld, only 0 to %zu", prefix, settings.document,
                             indexed_sequences(x) - 1);
    if ((rc = indexed_check(x, INT32_MAX)) == HKT_OK && settings.vocabulary_file)
        rc = open_tokenizer(&t);
    if (rc == HKT_OK)
        rc = print_sequence(x, t, (size_t)settings.document);
    tokenizer_free(t);
    return rc;
}

static int print(char **words, int count)
{
    int rc = HKT_OK;

    for (int i = 0; i < count && rc == HKT_OK; i++) {
        struct indexed *x;

        if ((rc = indexed_open(&x, words[i])) < 0)
            break;
        rc = print_open(x, words[i]);
        indexed_close(x);
    }
    return rc;
}

static int verify(char **words, int count)
{
    int rc = HKT_OK;

    for (int i = 0; i < count && rc == HKT_OK; i++) {
        struct indexed *x;

        if ((rc = indexed_open(&x, words[i])) < 0)
            break;
        rc = indexed_check(x, settings.vocabulary ? (size_t)settings.vocabulary : INT32_MAX);
        if (rc == HKT_OK)
            printf("%s: whole, %" PRIu64 " tokens%s\n", words[i], indexed_tokens(x),
                   settings.vocabulary ? " of the vocabulary" : "");
        indexed_close(x);
    }
    return rc;
}

static int merge(char **words, int count)
{
    struct indexed_writer *w  = NULL;
    int                    rc = HKT_OK;

    for (int i = 0; i < count && rc == HKT_OK; i++) {
        struct indexed *x;

        if ((rc = indexed_open(&x, words[i])) < 0)
            break;
        if (!w)
            rc = indexed_create(&w, settings.output, indexed_code(x));
        if (rc == HKT_OK)
            rc = indexed_append(w, x);
        indexed_close(x);
    }
    if (rc < 0)
        indexed_abandon(w);
    else
        rc = indexed_finish(w);
    return rc;
}

/* ---- the tool */

static const struct command {
    const char *name;
    int (*run)(char **words, int count);
    int  words; /* at least */
    bool output;
} commands[] = {
    {"tokenize", tokenize, 1, true},  {"train-tokenizer", train_tokenizer, 1, true},
    {"print", print, 1, false},       {"verify", verify, 1, false},
    {"merge", merge, 1, true},        {"checkpoint", data_checkpoint, 1, false},
    {"export", data_export, 1, true}, {"import", data_import, 1, true},
};

static const struct flags flags = {"hkt-data",
                                   "COMMAND [flags] FILE...\n"
                                   "  tokenize         text files to NAME.bin and NAME.idx, Megatron-LM's format\n"
                                   "  train-tokenizer  learns a byte-level BPE from text files\n"
                                   "  print            what PREFIX.bin and PREFIX.idx hold; with --index one sequence\n"
                                   "  verify           reads all of PREFIX.bin and PREFIX.idx\n"
                                   "  merge            several PREFIXes to one\n"
                                   "  checkpoint       what a FOLDER's checkpoint holds, every checksum verified\n"
                                   "  export           a FOLDER's checkpoint to a safetensors file of GPT-2\n"
                                   "  import           a safetensors file of GPT-2 to a checkpoint of step 0",
                                   "Prepares training data, tokenizers and models.",
                                   rows,
                                   sizeof(rows) / sizeof(rows[0]),
                                   false};

int main(int argc, char **argv)
{
    const int             first = flags_parse(&flags, argc, argv);
    const struct command *c     = commands;

    if (first >= argc)
        flags_fail(&flags, "a command is missing");
    while (strcmp(c->name, argv[first]) != 0)
        if (++c == commands + sizeof(commands) / sizeof(commands[0]))
            flags_fail(&flags, "'%s' is no command", argv[first]);
    if (argc - first - 1 < c->words)
        flags_fail(&flags, "%s: what to work on is missing", c->name);
    if (c->output && !settings.output)
        flags_fail(&flags, "%s: --output-prefix says where to", c->name);
    if (c->run(argv + first + 1, argc - first - 1) < 0) {
        fflush(stdout);
        fprintf(stderr, "hkt-data: %s\n", hkt_last_error());
        return 1;
    }
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "hkt-data: writing: %s\n", strerror(errno));
        return 1;
    }
    return 0;
}
