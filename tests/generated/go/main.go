// Makes a task, sends its lines, seals it and sets its quota, by what was generated beside it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func lines() *bytes.Buffer {
	var body bytes.Buffer
	title, data := "Sale", map[string]interface{}{"page": 1}
	for n := 1; n <= 3; n++ {
		push := PushLine{Recipient: fmt.Sprintf("device-%d", n), Title: &title, Data: &data}
		body.Write(append(must(json.Marshal(push)), '\n'))
	}
	return &body
}

func main() {
	ctx, url, token := context.Background(), os.Args[1]+"/v1", os.Args[2]
	api := must(NewClientWithResponses(url, WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+token)
			return nil
		})))
	app, key := "shop", "sale"
	task := must(api.CreateTaskWithResponse(ctx, CreateTaskJSONRequestBody{Level: "high", App: &app, Key: &key}))
	id := task.JSON200.Id
	sent := must(api.SendLinesWithBodyWithResponse(ctx, id, &SendLinesParams{}, "application/x-ndjson", lines()))
	sealed := must(api.SealTaskWithResponse(ctx, id, SealTaskJSONRequestBody{Total: sent.JSON200.SafeLine}))
	var quota SetQuotaJSONRequestBody
	if err := quota.Quota.FromSetQuotaJSONBodyQuota0(5); err != nil {
		log.Fatal(err)
	}
	set := must(api.SetQuotaWithResponse(ctx, id, &SetQuotaParams{IfMatch: "*"}, quota))
	refused := must(api.GetTaskWithResponse(ctx, "no-such-task", &GetTaskParams{}))
	fmt.Println(string(must(json.Marshal(map[string]interface{}{
		"safe":    sent.JSON200.SafeLine,
		"total":   sealed.JSON200.Total,
		"quota":   set.JSON200.Quota,
		"refused": refused.ApplicationproblemJSONDefault.Status,
	}))))
}
