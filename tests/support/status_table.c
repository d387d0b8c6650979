#include "status_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

static struct rf_table_row rows[RF_TABLE_ROWS];
static uint32_t row_count;

char *rf_source_text(const char *path)
{
    char name[4096];
    snprintf(name, sizeof(name), "%s/%s", RF_SOURCE_DIR, path);
    FILE *file = fopen(name, "rb");
    TEST_ASSERT_NOT_NULL_MESSAGE(file, name);
    TEST_ASSERT_EQUAL_INT(0, fseek(file, 0, SEEK_END));
    long size = ftell(file);
    TEST_ASSERT_TRUE(size > 0);
    rewind(file);
    char *text = malloc((size_t)size + 1);
    TEST_ASSERT_NOT_NULL(text);
    TEST_ASSERT_EQUAL_size_t((size_t)size, fread(text, 1, (size_t)size, file));
    text[size] = 0;
    fclose(file);
    return text;
}

static rf_status status_named(const char *name)
{
    for (unsigned i = 0; i < RF_TABLE_STATUS; i++) {
        if (strcmp(rf_status_name((rf_status)i), name) == 0) {
            return (rf_status)i;
        }
    }
    TEST_FAIL_MESSAGE(name);
    return RF_OK;
}

/* A word that ends in a colon opens a row; the words after it are its statuses, over any number of
 * lines. The stars of the comment are not words. */
static void take_word(const char *word)
{
    size_t len = strlen(word);
    if (strcmp(word, "*") == 0) {
        return;
    }
    if (word[len - 1] == ':') {
        TEST_ASSERT_TRUE(row_count < RF_TABLE_ROWS && len <= sizeof(rows[0].op));
        memcpy(rows[row_count].op, word, len - 1);
        row_count++;
        return;
    }
    TEST_ASSERT_NOT_EQUAL_UINT_MESSAGE(0, row_count, word);
    struct rf_table_row *row = &rows[row_count - 1];
    rf_status status = status_named(word);
    TEST_ASSERT_FALSE_MESSAGE(row->allowed[status], "a status stands twice in a row");
    TEST_ASSERT_TRUE(row->count < sizeof(row->statuses) / sizeof(row->statuses[0]));
    row->statuses[row->count++] = status;
    row->allowed[status] = true;
}

static void load(void)
{
    if (row_count != 0) {
        return;
    }
    char *text = rf_source_text("lib/include/ringfence/ringfence.h");
    char *begin = strstr(text, "STATUS TABLE BEGIN\n");
    char *end = strstr(text, "STATUS TABLE END\n");
    TEST_ASSERT_TRUE_MESSAGE(begin != NULL && end != NULL && begin < end, "no status table");
    *end = 0;
    char *rest = NULL;
    for (char *word = strtok_r(begin + strlen("STATUS TABLE BEGIN\n"), " \n", &rest); word != NULL;
         word = strtok_r(NULL, " \n", &rest)) {
        take_word(word);
    }
    free(text);
}

struct rf_table_row *rf_table_rows(uint32_t *count)
{
    load();
    *count = row_count;
    return rows;
}

struct rf_table_row *rf_table_row(const char *op)
{
    load();
    for (uint32_t i = 0; i < row_count; i++) {
        if (strcmp(rows[i].op, op) == 0) {
            return &rows[i];
        }
    }
    TEST_FAIL_MESSAGE(op);
    return NULL;
}

void rf_table_note(const char *op, rf_status status)
{
    struct rf_table_row *row = rf_table_row(op);
    TEST_ASSERT_TRUE((unsigned)status < RF_TABLE_STATUS);
    row->seen[status] = true;
    if (status == RF_OK || status == RF_INVALID_TIME || status == RF_INVALID_ARGUMENT ||
        row->allowed[status]) {
        return;
    }
    char said[128];
    snprintf(said, sizeof(said), "%s returned %s, which is not in its row of the header", op,
             rf_status_name(status));
    TEST_FAIL_MESSAGE(said);
}
