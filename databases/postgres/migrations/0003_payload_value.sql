-- Whether a payload is JSON with a value at a path: as JSON text, or as the content of a string. Other payloads are not an
-- error. `strict` keeps the path from unwrapping arrays.
CREATE FUNCTION {p}payload_value(payload bytea, path text, value text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    found jsonb;
BEGIN
    found := jsonb_path_query_first(convert_from(payload, 'UTF8')::jsonb, ('strict ' || path)::jsonpath, '{}', true);
    RETURN coalesce(found::text = value OR found #>> '{}' = value, false);
EXCEPTION WHEN others THEN
    RETURN false;
END
$$;
