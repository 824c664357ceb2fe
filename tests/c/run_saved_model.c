/* Runs a SavedModel on one string by TensorFlow's C API, without Python:
   run_saved_model FOLDER INPUT OUTPUT TEXT [OPERATOR_LIBRARY...]
   INPUT and OUTPUT are tensors of the signature, such as "StatefulCall:0". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorflow/c/c_api.h>

static TF_Status *status;

static void check(const char *what) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "%s: error %d: %s\n", what, TF_GetCode(status),
          TF_Message(status));
  exit(1);
}

static TF_Output find(TF_Graph *graph, char *tensor) {
  char *colon = strrchr(tensor, ':');
  int index = colon ? atoi(colon + 1) : 0;
  if (colon) *colon = '\0';
  TF_Output output = {TF_GraphOperationByName(graph, tensor), index};
  if (output.oper) return output;
  fprintf(stderr, "the graph has no tensor %s\n", tensor);
  exit(1);
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  status = TF_NewStatus();
  /* Before the graph is read, which refuses operators it does not know. */
  for (int i = 5; i < argc; i++) {
    TF_LoadLibrary(argv[i], status);
    check(argv[i]);
  }
  const char *tags[] = {"serve"};
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Session *session = TF_LoadSessionFromSavedModel(
      options, NULL, argv[1], tags, 1, graph, NULL, status);
  check("load");
  TF_Output input = find(graph, argv[2]), output = find(graph, argv[3]);
  int64_t batch = 1;
  TF_Tensor *scores, *texts =
      TF_AllocateTensor(TF_STRING, &batch, 1, sizeof(TF_TString));
  TF_StringInit(TF_TensorData(texts)); /* it is memory, not yet a string */
  TF_StringCopy(TF_TensorData(texts), argv[4], strlen(argv[4]));
  TF_SessionRun(session, NULL, &input, &texts, 1, &output, &scores, 1, NULL, 0,
                NULL, status);
  check("run");
  const float *values = TF_TensorData(scores);
  for (int64_t i = 0; i < TF_TensorElementCount(scores); i++)
    printf("%.9g\n", values[i]); /* nine digits give every float back */
  return 0;
}
