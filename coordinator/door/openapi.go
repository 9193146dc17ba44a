package door

import (
	"encoding/json"
	"reflect"
	"strings"
)

// OpenAPI is the document of the door over HTTP, OpenAPI 3.1, made of the table of verbs and of
// the types that decode their requests, so that it says what is accepted and nothing else.
func OpenAPI(version string) []byte {
	paths, schemas := object{}, object{"Error": schemaOf(reflect.TypeFor[Error]())}
	failure := object{"description": "why it was not carried out, and whether anything is stored",
		"content": object{"application/json": object{"schema": object{"type": "object",
			"properties": object{"error": reference("Error")}, "required": []string{"error"}}}}}
	for _, v := range Verbs() {
		schemas[v.Request.Name()+"Request"] = schemaOf(v.Request)
		answer := object{}
		if v.Answer != reflect.TypeFor[Raw]() {
			schemas[v.Answer.Name()] = schemaOf(v.Answer)
			answer = reference(v.Answer.Name())
		}
		responses := object{"200": object{"description": "what was done",
			"content": object{"application/json": object{"schema": answer}}}}
		for _, status := range []string{"401", "403", "404", "409", "422", "429", "503"} {
			responses[status] = failure
		}
		paths["/v1/{tenant}/{name}/"+v.Name] = object{"post": object{
			"operationId": strings.ReplaceAll(v.Name, ".", "_"), "summary": v.Summary,
			"tags":       []string{strings.Split(v.Name, ".")[0]},
			"parameters": []object{parameter("tenant"), parameter("name")},
			"requestBody": object{"required": true, "content": object{"application/json": object{
				"schema": reference(v.Request.Name() + "Request")}}},
			"responses": responses}}
	}
	paths["/v1/{tenant}/{name}/plans/{plan}/events"] = object{"get": object{
		"operationId": "plan_events", "summary": "Follow a plan", "tags": []string{"plan"},
		"parameters": []object{parameter("tenant"), parameter("name"), parameter("plan")},
		"responses": object{"200": object{"description": "server-sent events: state and notice",
			"content": object{"text/event-stream": object{}}}, "422": failure, "401": failure,
			"403": failure, "429": failure, "503": failure}}}
	paths["/v1/{tenant}/{name}/plans/{plan}/blobs/{digest}"] = blobPaths(failure)
	text, err := json.MarshalIndent(object{"openapi": "3.1.0",
		"info": object{"title": "Sagenbaum", "version": version,
			"summary": "Compensation as infrastructure for AI agents: the door for any language",
			"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"servers": []object{{"url": "/"}}, "paths": paths, "security": []object{{"token": []string{}}},
		"components": object{"schemas": schemas, "securitySchemes": object{"token": object{
			"type": "http", "scheme": "bearer", "description": "of sagenbaum user token"}}}}, "", " ")
	if err != nil {
		panic("door: cannot encode the OpenAPI document: " + err.Error())
	}
	return append(text, '\n')
}

// blobPaths are how blobs are stored and read.
func blobPaths(failure object) object {
	bytes := object{typeUnsaid: object{}}
	of := func(id, summary string, answer object) object {
		responses := object{"200": answer}
		for _, status := range []string{"401", "403", "404", "422", "429", "503"} {
			responses[status] = failure
		}
		return object{"operationId": id, "summary": summary, "tags": []string{"blob"},
			"parameters": []object{parameter("tenant"), parameter("name"), parameter("plan"),
				parameter("digest")}, "responses": responses}
	}
	put := of("blob_put", "Store the body; the digest is its SHA-256 in hex", object{
		"description": "the reference, which takes the place of the value",
		"content":     object{"application/json": object{"schema": object{"type": "object"}}}})
	put["requestBody"] = object{"required": true, "content": object{"*/*": object{}}}
	return object{"put": put, "get": of("blob_get", "Read a blob; the digest is its reference's",
		object{"description": "the value", "content": bytes})}
}

type object map[string]any

func reference(name string) object { return object{"$ref": "#/components/schemas/" + name} }

func parameter(name string) object {
	return object{"name": name, "in": "path", "required": true,
		"schema": object{"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}}
}

// schemaOf is the JSON schema of a request or of an answer.
func schemaOf(t reflect.Type) object {
	properties, required := object{}, []string{}
	for i := range t.NumField() {
		at := t.Field(i)
		if at.Anonymous {
			for name, schema := range schemaOf(at.Type)["properties"].(object) {
				properties[name] = schema
			}
			continue
		}
		name, _, _ := strings.Cut(at.Tag.Get("json"), ",")
		schema := typeSchema(at.Type)
		if doc := at.Tag.Get("doc"); doc != "" {
			schema["description"] = doc
		}
		if enum := at.Tag.Get("enum"); enum != "" {
			schema["enum"] = strings.Split(enum, ",")
		}
		properties[name] = schema
		if at.Tag.Get("req") != "" {
			required = append(required, name)
		}
	}
	schema := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		schema["required"] = required
	}
	if _, request := requestTypes()[t]; request {
		schema["additionalProperties"] = false
	}
	return schema
}

// requestTypes are those of the requests.
func requestTypes() map[reflect.Type]bool {
	found := map[reflect.Type]bool{}
	for _, v := range Verbs() {
		found[v.Request] = true
	}
	return found
}

// typeSchema is the schema of one field.
func typeSchema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	case reflect.TypeFor[Duration]():
		return object{"type": "string", "examples": []string{"90s", "2h"}}
	case reflect.TypeFor[Instant]():
		return object{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int:
		return object{"type": "integer", "minimum": 0}
	case reflect.Slice:
		return object{"type": "array", "items": typeSchema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": typeSchema(t.Elem())}
	case reflect.Struct:
		return schemaOf(t)
	case reflect.Pointer:
		return schemaOf(t.Elem())
	}
	panic("door: no schema for " + t.String())
}
