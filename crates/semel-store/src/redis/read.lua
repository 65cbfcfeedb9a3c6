-- Reads records, each whole, all as of one instant. Writes nothing.
--
-- KEYS: records
-- ARGV: bytes_max (with so many bytes read it stops: the reply may be shorter than the list, by no less than one)

-- What a reader is given of a record, in one order.
local function shown(record)
    local shown = {
        record[STATE], text(record[FENCE]), record[ATTEMPT], record[SPENT], record[ATTEMPTS], record[BOUND],
        text(record[BOUND_BY]), record[DOUBT], text(record[FIRST_AT]), text(record[SINCE]), record[LABEL], '',
        text(record[AT]), text(record[FORGET_AT]), record[WAS], record[SETTLES], -1, record[TEXT],
    }
    if record[INPUT] then
        shown[12] = '+' .. record[INPUT]
    end
    if record[FORMAT] then
        shown[17] = record[FORMAT]
    end
    return shown
end

local shown_records = { text(clock()) }
local bytes, bytes_max = 0, tonumber(ARGV[1])
for place, name in ipairs(KEYS) do
    if bytes > bytes_max then
        break
    end
    local record = load(name)
    if record then
        bytes = bytes + #record[TEXT] + #(record[INPUT] or '')
        shown_records[place + 1] = shown(record)
    else
        shown_records[place + 1] = 0
    end
end
return shown_records
