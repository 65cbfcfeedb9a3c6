-- Extends a lease, as record::renew does. Fenced within the script, so no takeover lies between the look and the
-- write; repeated it extends again.
--
-- KEYS: record, open, due, index, history
-- ARGV: id, fence, attempt, lease_for
local now = clock()
local record = load(KEYS[1])
if not record or record[STATE] ~= RUNNING or text(record[FENCE]) ~= ARGV[2] or record[ATTEMPT] ~= ARGV[3] then
    return 'lost'
end
record[AT] = after(now, tonumber(ARGV[4]))
save(KEYS, ARGV[1], record, record)
return 'done'
