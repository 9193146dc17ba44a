package mcp

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// exact is a transport that keeps the structured content of results as it is: the SDK would read
// it into Go values, and 10.10 would become 10.1. And it says which progress is before a result:
// the SDK gives a result at once to its caller, while its handler of progress may still be
// at an earlier one.
type exact struct {
	sdk.Transport
	progress func(*sdk.ProgressNotificationParams) // one has come; nil: no one wants to know
}

// Connect connects as the transport below does.
func (t exact) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return exactConnection{conn, t.progress}, nil
}

type exactConnection struct {
	sdk.Connection
	progress func(*sdk.ProgressNotificationParams)
}

const progressMethod = "notifications/progress"

// structuredKey is where the structured content of a result travels as a text.
const structuredKey = "sagenbaum/structured"

// Read returns the next message; a result has its structured content in its metadata as well.
func (c exactConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	message, err := c.Connection.Read(ctx)
	if r, ok := message.(*jsonrpc.Request); ok && c.progress != nil && r.Method == progressMethod {
		params := new(sdk.ProgressNotificationParams)
		if json.Unmarshal(r.Params, params) == nil {
			c.progress(params)
		}
	}
	response, ok := message.(*jsonrpc.Response)
	if err == nil && ok && bytes.Contains(response.Result, []byte(`"structuredContent"`)) {
		response.Result = withStructured(response.Result)
	}
	return message, err
}

func withStructured(result json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) != nil || len(members["structuredContent"]) == 0 {
		return result
	}
	meta := map[string]json.RawMessage{}
	if raw := members["_meta"]; len(raw) > 0 && json.Unmarshal(raw, &meta) != nil {
		return result
	}
	text, err := encode(string(members["structuredContent"]))
	if err != nil {
		return result
	}
	if meta == nil { // it was null
		meta = map[string]json.RawMessage{}
	}
	meta[structuredKey] = text
	if members["_meta"], err = encode(meta); err != nil {
		return result
	}
	again, err := encode(members)
	if err != nil {
		return result
	}
	return again
}

// restoreStructured gives a result its structured content back as it was.
func restoreStructured(result *sdk.CallToolResult) {
	raw, ok := result.Meta[structuredKey].(string)
	if !ok {
		return
	}
	result.StructuredContent = json.RawMessage(raw)
	delete(result.Meta, structuredKey)
	if len(result.Meta) == 0 {
		result.Meta = nil
	}
}
