/* Serves a SavedModel as TensorFlow Serving does, without Python:
   serve FOLDER RECORDS [OPERATOR_LIBRARY...]
   RECORDS is a file of requests such as a version's own warm-up records: a
   TFRecord file of PredictionLog messages. Prints every output of each. What
   the model does not take is said, and the next request is answered. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorflow/c/c_api.h>

enum { MAX = 16 }; /* inputs or outputs of a signature */
typedef struct { const uint8_t *at, *end; } Bytes;
static TF_Status *status;
static int refused; /* whether there was a request that the model did not take */

static void fail(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static bool is_error(const char *what) {
  if (TF_GetCode(status) == TF_OK) return false;
  fprintf(stderr, "%s: error %d: %s\n", what, TF_GetCode(status),
          TF_Message(status));
  return true;
}

static void check(const char *what) {
  if (is_error(what)) exit(1);
}

/* ---- Protocol buffers: fields, each a number and its bytes */

static uint64_t varint(Bytes *in) {
  uint64_t value = 0;
  for (int shift = 0; in->at < in->end && shift < 64; shift += 7) {
    uint8_t byte = *in->at++;
    value |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return value;
  }
  fail("message", "not a whole number");
  return 0;
}

/* The next field of a message, or 0 after the last one. */
static uint64_t next(Bytes *in, Bytes *value) {
  if (in->at == in->end) return 0;
  uint64_t tag = varint(in), size = 0;
  value->at = in->at;
  switch (tag & 7) {
    case 0: varint(in); value->end = in->at; return tag >> 3;
    case 1: size = 8; break;
    case 2: size = varint(in); value->at = in->at; break;
    case 5: size = 4; break;
    default: fail("message", "a field of no known type");
  }
  if (size > (uint64_t)(in->end - in->at)) fail("message", "not whole");
  in->at = value->end = value->at + size;
  return tag >> 3;
}

static Bytes get(Bytes message, uint64_t field) {
  Bytes value, found = {NULL, NULL};
  for (uint64_t at; (at = next(&message, &value));)
    if (at == field) found = value;
  return found;
}

/* The value of a key in a map, whose entries are messages of the two. */
static Bytes lookup(Bytes message, uint64_t field, Bytes key) {
  Bytes entry;
  for (uint64_t at; (at = next(&message, &entry));) {
    if (at != field) continue;
    Bytes own = get(entry, 1);
    if (own.end - own.at == key.end - key.at &&
        !memcmp(own.at, key.at, key.end - key.at))
      return get(entry, 2);
  }
  fprintf(stderr, "the model has no %.*s\n", (int)(key.end - key.at), key.at);
  exit(1);
}

/* ---- Records: length, its checksum, data, its checksum */

static uint32_t masked_crc(Bytes data) { /* CRC-32C, as TFRecord has it */
  uint32_t crc = ~0u;
  for (; data.at < data.end; data.at++) {
    crc ^= *data.at;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
  }
  return ((~crc >> 15) | (~crc << 17)) + 0xa282ead8u;
}

static Bytes take(Bytes *in, uint64_t size) { /* checked, and cut off */
  uint32_t crc;
  if ((uint64_t)(in->end - in->at) < size + 4) fail("records", "not whole");
  Bytes data = {in->at, in->at + size};
  memcpy(&crc, data.end, 4);
  if (crc != masked_crc(data)) fail("records", "a checksum is wrong");
  in->at += size + 4;
  return data;
}

static Bytes read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail(path, "cannot be opened");
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  uint8_t *data = malloc(size + 1);
  if (fread(data, 1, size, file) != (size_t)size) fail(path, "cannot be read");
  fclose(file);
  return (Bytes){data, data + size};
}

/* ---- Requests */

static TF_Output find(TF_Graph *graph, Bytes info) {
  char name[1024];
  Bytes tensor = get(info, 1);
  snprintf(name, sizeof name, "%.*s", (int)(tensor.end - tensor.at), tensor.at);
  char *colon = strrchr(name, ':');
  TF_Output output = {NULL, colon ? atoi(colon + 1) : 0};
  if (colon) *colon = '\0';
  output.oper = TF_GraphOperationByName(graph, name);
  if (!output.oper) fail(name, "the graph has no such tensor");
  return output;
}

/* TensorFlow itself reads a TensorProto, as the value of a constant. */
static TF_Tensor *parse(TF_Graph *graph, TF_Session *session, Bytes proto) {
  static int count;
  char name[32];
  snprintf(name, sizeof name, "request_%d", count++);
  Bytes dtype = get(proto, 1);
  TF_OperationDescription *constant = TF_NewOperation(graph, "Const", name);
  /* An AttrValue with one field: 8, `tensor`, of a length in base 128. */
  size_t size = proto.end - proto.at, head = 1;
  uint8_t *value = malloc(size + 11);
  value[0] = 8 << 3 | 2;
  for (size_t left = size;; left >>= 7) {
    value[head++] = (left & 127) | (left > 127) << 7;
    if (left <= 127) break;
  }
  if (size) memcpy(value + head, proto.at, size);
  TF_SetAttrValueProto(constant, "value", value, head + size, status);
  free(value);
  check("request");
  TF_SetAttrType(constant, "dtype", (TF_DataType)varint(&dtype));
  TF_Output output = {TF_FinishOperation(constant, status), 0};
  check("request");
  TF_Tensor *tensor;
  TF_SessionRun(session, NULL, NULL, NULL, 0, &output, &tensor, 1, NULL, 0, NULL,
                status);
  check("request");
  return tensor;
}

static void print(Bytes signature, Bytes name, const TF_Tensor *tensor) {
  printf("%.*s %.*s ", (int)(signature.end - signature.at), signature.at,
         (int)(name.end - name.at), name.at);
  for (int i = 0; i < TF_NumDims(tensor); i++)
    printf("%s%" PRId64, i ? "x" : "", TF_Dim(tensor, i));
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); i++) {
    if (TF_TensorType(tensor) == TF_FLOAT) { /* nine digits give it back */
      printf(" %.9g", ((float *)TF_TensorData(tensor))[i]);
    } else if (TF_TensorType(tensor) == TF_INT32) {
      printf(" %" PRId32, ((int32_t *)TF_TensorData(tensor))[i]);
    } else if (TF_TensorType(tensor) == TF_BOOL) {
      printf(" %d", ((bool *)TF_TensorData(tensor))[i]);
    } else if (TF_TensorType(tensor) == TF_STRING) {
      const TF_TString *text = (TF_TString *)TF_TensorData(tensor) + i;
      printf(" ");
      for (size_t j = 0; j < TF_StringGetSize(text); j++)
        printf("%02x", (uint8_t)TF_StringGetDataPointer(text)[j]);
    } else {
      fail("output", "of a type that is not printed");
    }
  }
  printf("\n");
}

static void serve(TF_Graph *graph, TF_Session *session, Bytes meta, Bytes log) {
  Bytes request = get(get(log, 6), 1), left = request, value;
  Bytes name = get(get(request, 1), 3);
  static const uint8_t usual[] = "serving_default";
  if (!name.at) name = (Bytes){usual, usual + sizeof usual - 1};
  Bytes signature = lookup(meta, 5, name), outputs = signature, names[MAX];
  TF_Output from[MAX], to[MAX];
  TF_Tensor *given[MAX], *found[MAX];
  int inputs = 0, answers = 0;
  for (uint64_t field; (field = next(&left, &value));) {
    if (field != 2 || inputs == MAX) continue;
    from[inputs] = find(graph, lookup(signature, 1, get(value, 1)));
    given[inputs++] = parse(graph, session, get(value, 2));
  }
  for (uint64_t field; (field = next(&outputs, &value));) {
    if (field != 2 || answers == MAX) continue;
    names[answers] = get(value, 1);
    to[answers++] = find(graph, get(value, 2));
  }
  TF_SessionRun(session, NULL, from, given, inputs, to, found, answers, NULL, 0,
                NULL, status);
  for (int i = 0; i < inputs; i++) TF_DeleteTensor(given[i]);
  if (is_error("run")) {
    refused = 1;
    return;
  }
  for (int i = 0; i < answers; i++) {
    print(name, names[i], found[i]);
    TF_DeleteTensor(found[i]);
  }
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  status = TF_NewStatus();
  /* Before the graph is read, which refuses operators it does not know. */
  for (int i = 3; i < argc; i++) {
    TF_LoadLibrary(argv[i], status);
    check(argv[i]);
  }
  const char *tags[] = {"serve"};
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Buffer *buffer = TF_NewBuffer();
  TF_Session *session = TF_LoadSessionFromSavedModel(
      options, NULL, argv[1], tags, 1, graph, buffer, status);
  check("load");
  const uint8_t *data = buffer->data;
  Bytes meta = {data, data + buffer->length}, records = read_file(argv[2]);
  while (records.at < records.end) {
    uint64_t size;
    memcpy(&size, take(&records, 8).at, 8);
    serve(graph, session, meta, take(&records, size));
  }
  return refused;
}
