/* Opens a checkpoint, plans it, and loads it twice: where the library puts it, and into memory of this program. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weighbridge.h"

/* Prints an error with all its problems, and frees it. */
static void say(wb_error *error)
{
    for (size_t i = 0; i < wb_error_problem_count(error); i++) {
        printf("  %s\n", wb_error_problem(error, i));
        for (size_t j = 0; wb_error_hint(error, i, j) != NULL; j++)
            printf("  hint: %s\n", wb_error_hint(error, i, j));
    }
    wb_error_free(error);
}

static int failed(const char *what, wb_error *error)
{
    fprintf(stderr, "%s: %s\n", what, wb_error_message(error));
    wb_error_free(error);
    return EXIT_FAILURE;
}

/* Memory of this program for each parameter. */
struct memory {
    size_t count;
    float **data;
    uint64_t *bytes;
};

static bool place(void *context, const wb_place *asked, void **planes)
{
    struct memory *memory = context;
    if (asked->planes != 1 || asked->index >= memory->count)
        return false;
    memory->bytes[asked->index] = asked->plane_bytes[0];
    memory->data[asked->index] = malloc(asked->plane_bytes[0]);
    planes[0] = memory->data[asked->index];
    return planes[0] != NULL;
}

static bool never(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    (void)done;
    (void)total;
    return false;
}

int main(int argc, char **argv)
{
    if (argc != 2 || wb_abi_version() != WB_ABI_VERSION) {
        fprintf(stderr, "wanted one checkpoint, and version %d of the library\n", WB_ABI_VERSION);
        return EXIT_FAILURE;
    }
    wb_error *error = NULL;
    wb_checkpoint *checkpoint = wb_open(argv[1], &error);
    if (checkpoint == NULL)
        return failed("open", error);
    wb_entry entry;
    if (wb_checkpoint_entry(checkpoint, 0, &entry))
        printf("%s, %zu tensors, the first is %s %s\n", wb_checkpoint_format(checkpoint), wb_checkpoint_count(checkpoint),
               entry.name, entry.scheme);

    /* What does not fit is said, all of it. */
    wb_plan_options wrong = {.size = sizeof wrong, .layout = "modules", .tp = 7};
    if (wb_plan_new(checkpoint, &wrong, &error) == NULL) {
        printf("kind %d\n", (int)wb_error_get_kind(error));
        say(error);
        error = NULL;
    }

    const char *rules[] = {"*=f32"};
    wb_plan_options options = {.size = sizeof options, .layout = "canonical", .encode = rules, .encode_count = 1};
    wb_plan *plan = wb_plan_new(checkpoint, &options, &error);
    if (plan == NULL)
        return failed("plan", error);
    wb_needs needs;
    wb_load_options load = {.size = sizeof load, .threads = 2, .owned = true};
    if (!wb_plan_needs(plan, &load, &needs, &error))
        return failed("needs", error);
    printf("%zu parameters, %llu bytes of memory\n", wb_plan_count(plan), (unsigned long long)needs.owned);

    /* The plan stays without the checkpoint, and what is loaded without the plan. */
    wb_checkpoint_free(checkpoint);
    wb_loaded *loaded = wb_load(plan, NULL, &error);
    if (loaded == NULL)
        return failed("load", error);

    struct memory memory = {.count = wb_plan_count(plan)};
    memory.data = calloc(memory.count, sizeof *memory.data);
    memory.bytes = calloc(memory.count, sizeof *memory.bytes);
    if (!wb_load_into(plan, place, &memory, NULL, &error))
        return failed("load into", error);
    double sum = 0;
    for (size_t i = 0; i < memory.count; i++) {
        wb_param param;
        wb_plane plane;
        if (!wb_plan_param(plan, i, &param) || !wb_loaded_plane(loaded, param.name, 0, &plane))
            return EXIT_FAILURE;
        if (param.tied_to != SIZE_MAX)
            continue;
        if (plane.bytes != memory.bytes[i] || memcmp(plane.data, memory.data[i], plane.bytes) != 0) {
            fprintf(stderr, "%s differs\n", param.name);
            return EXIT_FAILURE;
        }
        for (size_t j = 0; j < plane.bytes / sizeof(float); j++)
            sum += memory.data[i][j];
        free(memory.data[i]);
    }
    printf("sum %.3f\n", sum);
    free(memory.data);
    free(memory.bytes);

    load.progress = never;
    if (wb_load(plan, &load, &error) == NULL) {
        printf("ended: %s\n", wb_error_get_kind(error) == WB_ERROR_CANCELLED ? "by this program" : wb_error_message(error));
        wb_error_free(error);
        error = NULL;
    }
    wb_plan_free(plan);
    wb_loaded_free(loaded);
    if (wb_open("no such file", &error) != NULL || wb_error_get_kind(error) != WB_ERROR_CHECKPOINT)
        return EXIT_FAILURE;
    wb_error_free(error);
    return EXIT_SUCCESS;
}
