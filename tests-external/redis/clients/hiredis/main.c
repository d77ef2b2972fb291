/* hiredis against a server. usage: hiredis PORT */
#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static redisContext *context;

static void fail(const char *what, const char *why) {
    printf("%s: %s\n", what, why);
    exit(1);
}

static redisReply *checked(const char *what, redisReply *reply, int type) {
    if (!reply) fail(what, context->errstr);
    if (reply->type != type) fail(what, reply->str ? reply->str : "a reply of another kind");
    return reply;
}

static redisReply *ask(int type, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(context, format, arguments);
    va_end(arguments);
    return checked(format, reply, type);
}

static void is_number(redisReply *reply, long long wanted, const char *what) {
    if (reply->integer != wanted) fail(what, "a wrong number");
    freeReplyObject(reply);
}

static void is_text(redisReply *reply, const char *wanted, size_t length, const char *what) {
    if ((size_t)reply->len != length || memcmp(reply->str, wanted, length))
        fail(what, "a wrong text");
    freeReplyObject(reply);
}

static void values(void) {
    is_text(ask(REDIS_REPLY_STATUS, "FLUSHALL"), "OK", 2, "FLUSHALL");
    is_text(ask(REDIS_REPLY_STATUS, "SET k v EX 100"), "OK", 2, "SET");
    is_text(ask(REDIS_REPLY_STRING, "GET k"), "v", 1, "GET");
    redisReply *left = ask(REDIS_REPLY_INTEGER, "TTL k");
    if (left->integer <= 90 || left->integer > 100) /* A machine may be busy. */
        fail("TTL", "a wrong number");
    freeReplyObject(left);
    freeReplyObject(ask(REDIS_REPLY_NIL, "SET k w NX"));
    freeReplyObject(ask(REDIS_REPLY_NIL, "GET none"));
    is_text(ask(REDIS_REPLY_STATUS, "MSET a 1 b 2"), "OK", 2, "MSET");
    redisReply *many = ask(REDIS_REPLY_ARRAY, "MGET a none b");
    if (many->elements != 3 || many->element[1]->type != REDIS_REPLY_NIL ||
        strcmp(many->element[0]->str, "1") || strcmp(many->element[2]->str, "2"))
        fail("MGET", "wrong elements");
    freeReplyObject(many);
    is_number(ask(REDIS_REPLY_INTEGER, "INCR n"), 1, "INCR");
    is_number(ask(REDIS_REPLY_INTEGER, "DECRBY n 43"), -42, "DECRBY");
    is_number(ask(REDIS_REPLY_INTEGER, "DEL a b none"), 2, "DEL");
    redisReply *unknown = ask(REDIS_REPLY_ERROR, "LPUSH l 1");
    if (!strstr(unknown->str, "unknown command")) fail("LPUSH", unknown->str);
    freeReplyObject(unknown);
    redisReply *word = ask(REDIS_REPLY_ERROR, "INCR k");
    if (!strstr(word->str, "not an integer")) fail("INCR", word->str);
    freeReplyObject(word);
}

static void bytes_of_any_kind(void) {
    static const char key[] = {'\r', '\n', 0, ' ', (char)0xff};
    size_t length = 5000000;
    char *large = malloc(length);
    if (!large) fail("malloc", "no memory");
    for (size_t i = 0; i < length; i++) large[i] = (char)(i * 2654435761u >> 13);
    redisReply *stored =
        ask(REDIS_REPLY_STATUS, "SET %b %b", key, sizeof key, large, length);
    is_text(stored, "OK", 2, "SET of 5 MB");
    is_text(ask(REDIS_REPLY_STRING, "GET %b", key, sizeof key), large, length, "GET of 5 MB");
    is_number(ask(REDIS_REPLY_INTEGER, "DEL %b", key, sizeof key), 1, "DEL");
    free(large);
}

static redisReply *next(int type) {
    void *reply = NULL;
    if (redisGetReply(context, &reply) != REDIS_OK) fail("a pipeline", context->errstr);
    return checked("a pipeline", reply, type);
}

static void pipelines(void) {
    for (int number = 0; number < 1000; number++) {
        redisAppendCommand(context, "SET p%d %d", number, number);
        redisAppendCommand(context, "GET p%d", number);
    }
    for (int number = 0; number < 1000; number++) {
        char wanted[16];
        int length = snprintf(wanted, sizeof wanted, "%d", number);
        is_text(next(REDIS_REPLY_STATUS), "OK", 2, "SET in a pipeline");
        is_text(next(REDIS_REPLY_STRING), wanted, (size_t)length, "GET in a pipeline");
    }
    is_text(ask(REDIS_REPLY_STATUS, "MULTI"), "OK", 2, "MULTI");
    is_text(ask(REDIS_REPLY_STATUS, "SET t 1"), "QUEUED", 6, "SET");
    is_text(ask(REDIS_REPLY_STATUS, "INCR t"), "QUEUED", 6, "INCR");
    redisReply *done = ask(REDIS_REPLY_ARRAY, "EXEC");
    if (done->elements != 2 || done->element[1]->integer != 2) fail("EXEC", "wrong elements");
    freeReplyObject(done);
}

int main(int count, char **words) {
    if (count != 2) fail("usage", "hiredis PORT");
    context = redisConnect("127.0.0.1", atoi(words[1]));
    if (!context || context->err) fail("connecting", context ? context->errstr : "no memory");
    values();
    bytes_of_any_kind();
    pipelines();
    redisFree(context);
    printf("hiredis %d.%d.%d\n", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    return 0;
}
